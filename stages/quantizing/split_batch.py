"""Batches taken apart: `main` computes one picture, and runs once for each of a batch.

    data [8, 3, 224, 224] -> out [8, 1000], 8 times data [1, 3, 224, 224] -> out [1, 1000]

What lies between the layers of one picture stays in the cache, where that of a whole batch goes to
memory and comes back; the arena is that of one picture; kernels that know no batch, such as those
on bits, can be chosen. Weights are read once a picture, though. So the last layers, if these are
mostly weights, compute all pictures at once: what they read is collected (`qnn.collect`). A network
that is mostly weights from its first layer on stays as it is. So does one in which pictures meet,
or may do so, before they are collected.
"""

from __future__ import annotations

from typing import Any

from tvm import relax
from tvm.ir import Call
from tvm.ir.attrs import DictAttrs

from stages.dialect.calls import attributes, is_op, shape_of, tensor_types
from stages.errors import StageError
from stages.graph.bindings import bindings_of, output_names, outputs_of, variables_in
from stages.graph.collecting import collect
from stages.graph.rewriting import Rewriting
from stages.kinds import Model
from stages.quantizing.batch_cuts import first_together

SHAPED = ("relax.reshape", "relax.broadcast_to")
"""Operators that are told the shape of their result."""


def apart(model: Model) -> Model:
    """The model for one picture of its batch, with the attribute `pictures`; or as it is."""
    batch = _batch(model)
    if batch == 1 or (first := first_together(model, batch)) == 0:
        return model
    try:
        return _Walk(model, batch, first).run()
    except _MeetError:
        return model


def always_apart(model: Model) -> Model:
    """As `apart`, however many weights there are; StageError where pictures may meet."""
    batch = _batch(model)
    return _Walk(model, batch).run() if batch > 1 else model


def _batch(model: Model) -> int:
    """The first extent that all inputs have in common; 1 where they have none. That of a vector
    counts no samples."""
    main = model.module["main"]
    inputs = main.params[: int(main.attrs["num_input"])]
    batches = {shape_of(item.ty)[:-1][:1] for item in inputs}
    return batches.pop()[0] if len(batches) == 1 and () not in batches else 1


class _MeetError(StageError):
    """Pictures of the batch may meet in a layer."""

    def __init__(self, batch: int, layer: str) -> None:
        super().__init__(
            f"the {batch} samples of a batch meet here, and can only be computed one by one",
            layer=layer,
            hint="state a shape with a batch of 1 under inputs in the recipe",
        )


class _Walk(Rewriting):
    """One pass over `main`, for a single picture up to the binding at the place `first`.

    Whatever depends on an input must have the batch as its first axis up to there, and nothing else
    of its shape may depend on that; no operator may work along it.
    """

    def __init__(self, source: Model, batch: int, first: int | None = None) -> None:
        self.batch, self.first, self.layer = batch, first, ""
        super().__init__(source, self.extents)
        self.varying = set(self.mapping)
        """Old variables that depend on the picture."""

    def extents(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of one picture's share of a tensor."""
        if shape[:1] != (self.batch,):
            raise self.error
        return (1, *shape[1:])

    @property
    def error(self) -> _MeetError:
        """That pictures meet in the current layer."""
        return _MeetError(self.batch, self.layer)

    def run(self) -> Model:
        """Walk, and build the model anew."""
        bindings = bindings_of(self.main)
        for binding in bindings[: self.first]:
            if self.varying.isdisjoint(variables_in(binding.value)):
                self.copy(binding)
                continue
            self.layer = str(binding.var.name)
            self.varying.add(binding.var)
            self.mapping[binding.var] = self._one(binding)
        if self.first is not None:
            self._together(bindings[self.first :])
        outputs = outputs_of(self.main)
        if not self.varying.issuperset(outputs):
            raise self.error
        results = [self.mapping[output] for output in outputs]
        attrs = {**self.main.attrs, "pictures": self.batch}
        return self.builder.model(results, output_names(self.source), attrs=attrs)

    def _together(self, bindings: list[Any]) -> None:
        """Walk the bindings that are for all pictures: what they read is collected first."""
        outputs = outputs_of(self.main)
        single = set(self.mapping) - self.constants.keys()
        for binding in bindings:
            read = variables_in(binding.value)
            for variable in single.intersection(read) if binding.var not in outputs else ():
                if variable not in self.varying:
                    raise self.error
                single.remove(variable)
                all_of_them = collect(self.mapping[variable], pictures=self.batch)
                name = f"{variable.name}.collected"
                self.mapping[variable] = self.builder.emit(all_of_them, name)
            if not self.varying.isdisjoint(read):
                self.varying.add(binding.var)
            self.copy(binding)

    def _one(self, binding: Any) -> Any:
        """What a binding is for one picture."""
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

    def _share(self, value: Any) -> Any:
        if isinstance(value, Call) and str(value.op.name) in SHAPED:
            shape = relax.ShapeExpr(self.extents(shape_of(value.ty)))
            return Call(value.op, [self.read(value.args[0]), shape], value.attrs)
        return self.remapped(value)

    def _check(self, call: Call) -> None:
        """Refuse an operator that may bring pictures together without its shape telling."""
        reads = [variable for variable in variables_in(call) if variable in self.varying]
        ranks = {len(shape_of(kind)) for variable in reads for kind in tensor_types(variable.ty)}
        if len(ranks) != 1 or ranks == {1} or 0 in _axes(call, ranks.pop()):
            raise self.error


def _axes(call: Call, rank: int) -> list[int]:
    """The axes that an operator is told to work along; those of a transposition that it moves."""
    if is_op(call, "relax.strided_slice"):
        return [int(axis) % rank for axis in call.args[1].fields]
    if is_op(call, "relax.permute_dims"):
        order = call.attrs.axes or range(rank)[::-1]
        return [axis for axis, source in enumerate(order) if int(source) % rank != axis]
    is_ours = isinstance(call.attrs, DictAttrs)
    axis: Any = attributes(call).get("axis", ()) if is_ours else getattr(call.attrs, "axis", ())
    if axis is None:
        return list(range(rank))
    return [int(each) % rank for each in (axis if hasattr(axis, "__len__") else [axis])]
