"""Splitting the batch: `main` computes one image, and runs once for each of a batch.

    data [8, 3, 224, 224] -> out [8, 1000], 8 times data [1, 3, 224, 224] -> out [1, 1000]

What lies between the layers of one image stays in the cache, where that of a whole batch goes to
memory and comes back; the arena is that of one image; kernels that know no batch, such as those
on bits, can be chosen. Weights are read once an image, though. So the last layers, if these are
mostly weights, compute all images at once: what they read is collected (`qnn.collect`). A network
that is mostly weights from its first layer on stays as it is. So does one in which images meet,
or may do so, before they are collected.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import relax
from tvm.ir.attrs import DictAttrs

from stages.dialect import names
from stages.dialect.calls import attributes, is_op, shape_of, tensor_types
from stages.errors import StageError
from stages.graph.bindings import bindings_of, output_names, outputs_of, variables_in
from stages.graph.collecting import collect
from stages.graph.passes import Pass
from stages.kinds import Model
from stages.nodes import Call, Expr, Var, VarBinding
from stages.quantizing.batch_cuts import first_together

SHAPED = (names.RESHAPE, names.BROADCAST_TO)
"""Operators that are told the shape of their result."""


def _batch(model: Model) -> int:
    """The first extent that all inputs have in common; 1 where they have none. That of a vector
    counts no samples."""
    main = model.module["main"]
    inputs = main.params[: int(main.attrs["num_input"])]
    batches = {shape_of(item.ty)[:-1][:1] for item in inputs}
    return batches.pop()[0] if len(batches) == 1 and () not in batches else 1


class ImagesMeetError(StageError):
    """Images of the batch may meet in a layer."""

    def __init__(self, batch: int, layer: str) -> None:
        super().__init__(
            f"the {batch} samples of a batch meet here, and can only be computed one by one",
            layer=layer,
            hint="state a shape with a batch of 1 under inputs in the recipe",
        )


class SplitBatch(Pass):
    """Has `main` compute a single image, up to the binding at the place `first`.

    `main` gets the attribute `images`. Whatever depends on an input must have the batch as its
    first axis up to `first`, and nothing else of its shape may depend on that; no operator may work
    along it. Otherwise the model stays as it is.
    """

    def __init__(self, source: Model) -> None:
        self.batch, self.layer = _batch(source), ""
        super().__init__(source)
        self.first = self.place()
        bindings = bindings_of(self.main)
        self.together = {binding.var for binding in bindings[self.first :]} if self.first else set()
        """Old variables that are computed of all images at once."""
        self.single: set[Var] | None = None
        """What those may read of one image, that is not collected yet."""
        self.varying = set(self.mapping)
        """Old variables that depend on the image."""
        for binding in bindings:
            if not self.varying.isdisjoint(variables_in(binding.value)):
                self.varying.add(binding.var)

    def place(self) -> int | None:
        """The place of the first binding that computes all images at once, if one does."""
        return first_together(self.source, self.batch) if self.batch > 1 else None

    def is_needed(self) -> bool:
        """Whether there is a batch, and layers that had better compute its images one by one."""
        return self.batch > 1 and self.first != 0

    def run(self) -> Model:
        """The model of one image; the same as before where images meet."""
        try:
            return super().run()
        except ImagesMeetError:
            self.rewrites = 0
            return self.source

    def input_shape(self, variable: Var) -> tuple[int, ...]:
        """The shape of one image of an input."""
        shape = shape_of(variable.ty)
        return self.extents(shape) if self.batch > 1 else shape

    def extents(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of one image's share of a tensor."""
        if shape[:1] != (self.batch,):
            raise self.error
        return (1, *shape[1:])

    @property
    def error(self) -> ImagesMeetError:
        """The error that images meet in the current layer."""
        return ImagesMeetError(self.batch, self.layer)

    def rewrite(self, binding: VarBinding) -> Expr | None:
        """The share of one image in what depends on it, or what is computed of them all."""
        if binding.var in self.together:
            return self._of_all(binding)
        if binding.var not in self.varying:
            return None
        self.layer = str(binding.var.name)
        return self._one(binding)

    def finish(self, results: Sequence[Var]) -> Model:
        """The new model, whose `main` runs once for each of the images."""
        outputs = outputs_of(self.main)
        if not self.varying.issuperset(outputs):
            raise self.error
        if self.together:
            values = {b.var: b.value for b in bindings_of(self.main) if b.var in outputs}
            self._gather([values[output] for output in outputs])
            results = [self.mapping[values[output]] for output in outputs]
        attrs = {**self.main.attrs, "pictures": self.batch}
        return self.builder.model(results, output_names(self.source), attrs=attrs)

    def _of_all(self, binding: VarBinding) -> Expr | None:
        """What a binding is for all images: what it reads of one is collected first."""
        is_first = self._gather(variables_in(binding.value))
        return self.remapped(binding.value) if is_first else None

    def _gather(self, variables: Sequence[Var]) -> bool:
        """Collect those of some variables that are of one image; whether there were any."""
        if self.single is None:
            self.single = set(self.mapping) - self.constants.keys()
        read = [variable for variable in dict.fromkeys(variables) if variable in self.single]
        for variable in read:
            if variable not in self.varying:
                raise self.error
            self.single.remove(variable)
            collected = collect(self.mapping[variable], pictures=self.batch)
            name = f"{variable.name}.collected"
            self.mapping[variable] = self.builder.emit(collected, name)
        return bool(read)

    def _one(self, binding: VarBinding) -> Var:
        """What a binding is for one image."""
        if isinstance(binding.value, Call):
            self._check(binding.value)
        try:
            result = self.builder.emit(self._share(binding.value), str(binding.var.name))
        except (TypeError, ValueError) as error:
            raise self.error from error
        kinds = zip(tensor_types(binding.var.ty), tensor_types(result.ty), strict=True)
        if any(self.extents(shape_of(old)) != shape_of(new) for old, new in kinds):
            raise self.error
        return result

    def _share(self, value: Expr) -> Expr:
        if isinstance(value, Call) and str(value.op.name) in SHAPED:
            shape = relax.ShapeExpr(self.extents(shape_of(value.ty)))
            return Call(value.op, [self.read(value.args[0]), shape], value.attrs)
        return self.remapped(value)

    def _check(self, call: Call) -> None:
        """Refuse an operator that may bring images together without its shape telling."""
        reads = [variable for variable in variables_in(call) if variable in self.varying]
        ranks = {len(shape_of(kind)) for variable in reads for kind in tensor_types(variable.ty)}
        if len(ranks) != 1 or ranks == {1} or 0 in _axes(call, ranks.pop()):
            raise self.error


class SplitWholeBatch(SplitBatch):
    """Splits a batch down to the last layer, for layers that know single images alone.

    StageError where images may meet.
    """

    def place(self) -> int | None:
        """None: nothing computes all images at once."""
        return None

    def run(self) -> Model:
        """The model of one image."""
        return Pass.run(self)


def _axes(call: Call, rank: int) -> list[int]:
    """The axes that an operator is told to work along; those of a transposition that it moves."""
    if is_op(call, names.STRIDED_SLICE):
        return [int(axis) % rank for axis in call.args[1].fields]
    if is_op(call, names.PERMUTE_DIMS):
        order = call.attrs.axes or range(rank)[::-1]
        return [axis for axis, source in enumerate(order) if int(source) % rank != axis]
    is_ours = isinstance(call.attrs, DictAttrs)
    axis: Any = attributes(call).get("axis", ()) if is_ours else getattr(call.attrs, "axis", ())
    if axis is None:
        return list(range(rank))
    return [int(each) % rank for each in (axis if hasattr(axis, "__len__") else [axis])]
