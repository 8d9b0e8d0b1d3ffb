"""Bit-packing of integer models: products get a kernel signature, packed weights and edges.

A composite of products reads bytes with a halo and channels padded to whole words, or bit planes
made of bytes. It writes its result as the user sees it, and beside it or instead with the halo that
its readers want; what nobody writes so, a plain composite makes in front of them.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from tvm import relax
from tvm.ir import Call

from hw.profile import Hardware
from stages.bitpacking import narrow
from stages.bitpacking.choosing import in_phases, subject_of
from stages.bitpacking.depthwise import Depthwise, depthwise_of
from stages.bitpacking.edges import Layout, emit_load, emit_store
from stages.bitpacking.folding import corrected, stored_weights
from stages.bitpacking.handing import (
    Handed,
    Product,
    products_of,
    reads_once,
    turned,
    works_of,
)
from stages.bitpacking.matrices import Matrix, matrices
from stages.bitpacking.narrow import is_narrow
from stages.bitpacking.rebasing import rebased
from stages.bitpacking.results import epilogue, laid_out, stored
from stages.bitpacking.rounding import Marks, converts_slowly, marks_of
from stages.bitpacking.tiles import convolve, transforming
from stages.kinds import Model, Table
from stages.options import LegalizeOptions
from stages.qnn import packed
from stages.qnn.builder import (
    FunctionBuilder,
    bindings_of,
    outputs_of,
    variables_in,
)
from stages.qnn.composites import DEPTHWISE, PLAIN, PRODUCTS, TILES, is_batched, is_reshape
from stages.qnn.depthwise import packed_depthwise
from stages.qnn.measured import Subject
from stages.qnn.packing import round_up
from stages.qnn.registry import attributes, dtype_of, is_op, shape_of
from stages.qnn.rewriting import Rewriting
from stages.qnn.signature import BLOCK
from stages.qnn.transformed import tiles_for

Array = np.ndarray[Any, Any]


def pack_products(
    model: Model, options: LegalizeOptions, offers: Table, choices: Table, hardware: Hardware
) -> Model:
    """The model with every composite of products around its packed convolution."""
    return _Packer(model, options, offers, choices, hardware).run()


def subjects(*, model: Model, options: LegalizeOptions, offers: Table) -> dict[str, Subject]:
    """Layer → what there is to choose for it, in a model that `pack_products` takes."""
    works = works_of(model, options)
    phased = in_phases(model.module, works, offers)
    return {str(v.name): subject_of(work, offers, phased) for v, work in works.items()}


class _Packer(Rewriting):
    """The walk over `main`: composites of products anew, everything else as it was."""

    def __init__(
        self,
        source: Model,
        options: LegalizeOptions,
        offers: Table,
        choices: Table,
        hardware: Hardware,
    ) -> None:
        super().__init__(source)
        self.functions = relax.BlockBuilder()
        self.edges: dict[tuple[Any, ...], Any] = {}
        """(Tensor, and all that says how it lies) → the tensor laid out so."""
        views = (b for b in bindings_of(self.main) if is_reshape(b.value))
        self.views = {binding.var: binding.value.args[0] for binding in views}
        """Variable of `main` → what it names the memory of anew."""
        readers = Counter(v for b in bindings_of(self.main) for v in variables_in(b.value))
        self.turned = turned(source, readers)
        self.depthwise = depthwise_of(source, hardware)
        products = products_of(source, options, offers, choices)
        self.products, self.handed = rebased(source, products, self.depthwise)
        self.converts_slowly = converts_slowly(hardware)
        found = narrow.sources(source, readers)
        others = (p for p in self.products.values() if not self._lies_so(p.data, p.edge))
        narrowed = (p for p in others if is_narrow(p.edge) and reads_once(p.function))
        origins = (self._origin(p.data)[0] for p in narrowed)
        self.drawn = {origin: found[origin] for origin in origins if origin in found}
        """What gives a picture of few channels, and is computed where that is laid out."""
        self.matrices = matrices(source, self.products, readers)
        packed_on_the_way = (turn for m in self.matrices.values() for turn in m.turns)
        self.unread = {*self.turned, *self.drawn, *packed_on_the_way}

    def run(self) -> Model:
        """Rewrite call by call."""
        for binding in bindings_of(self.main):
            if binding.var not in self.mapping:
                self.mapping[binding.var] = self._value(binding)
        results = [self.mapping[output] for output in outputs_of(self.main)]
        functions = dict(self.functions.get().functions)
        return self.builder.model_after(self.source, results, functions)

    def _value(self, binding: Any) -> Any:
        expr, name = binding.value, str(binding.var.name)
        if isinstance(expr, relax.Var):
            return self.read(expr)
        if binding.var in self.unread:
            return None  # the only one to read it turns or computes it on the way
        if isinstance(expr, Call) and isinstance(expr.op, relax.GlobalVar):
            if binding.var in self.products:
                return self._products(binding.var, self.products[binding.var])
            if binding.var in self.depthwise:
                return self._depthwise(binding.var, self.depthwise[binding.var])
            function = self.source.module[expr.op]
            arguments = [self.read(argument) for argument in expr.args]
            wanted = self.handed.get(binding.var, Handed())
            if wanted.is_written and not wanted.pads and len(wanted.edges) == 1:
                value = self._call(stored(function, wanted.edges[0]), arguments, name)
                return self._hand_on(binding.var, wanted, value)
            return self._call(function, arguments, name)
        return self.builder.emit(self.remapped(expr), name)

    def _call(self, function: Any, arguments: list[Any], name: str) -> Any:
        callee = self.functions.add_func(function, str(function.attrs["composite"]))
        return self.builder.emit_typed(Call(callee, arguments, ret_ty=function.ret_ty), name)

    # -- one composite -----------------------------------------------------------------------

    def _products(self, variable: Any, product: Product) -> Any:
        layer, attrs = str(variable.name), attributes(product.inner.value)
        q, edge, signature = product.q, product.edge, product.chosen.signature
        scale, bias, border = _corrected(product, attrs)
        added, constant = self._added(product.function, product.inner.var, product.actual)
        if len(constant):
            bias = bias + np.pad(constant, (0, bias.shape[1] - len(constant)))
        marks, moved = self._marks(product.function, added, product.most(constant), product.actual)
        bias = bias + bias.dtype.type(moved)
        stored = self._edge(product.data, edge, layer)
        arguments = [
            self._tiles(stored, product, layer) if signature.is_transformed else stored,
            self._weights(product, layer),
            self.builder.tensor(f"{layer}.bias", bias),
        ]
        builder = FunctionBuilder()
        call = convolve(
            signature,
            _declared(builder, arguments),
            product.origin,
            product.chosen,
            edge,
            inputs=q.shape[3],
            outputs=q.shape[0],
            scale=scale,
            border=border,
        )
        sums = builder.emit(call, "sums")
        value = builder.emit(packed.take_channels(sums, channels=q.shape[0]), "taken")
        if signature.offset and is_batched(product.inner.value):
            arguments.append(self._offsets(product, layer))
            kind = arguments[-1].ty
            offsets = builder.param(f"p{len(arguments) - 1}", shape_of(kind), dtype_of(kind))
            value = builder.emit(relax.op.add(value, offsets), "moved")
        shape = shape_of(product.inner.var.ty)
        if shape_of(value.ty) != shape:
            value = builder.emit(relax.op.reshape(value, shape), "shaped")
        inside = {product.inner.var: value, added: value}
        results = epilogue(
            product.function, inside, product.actual, builder, arguments, self._found, marks
        )
        wanted = self.handed.get(variable, Handed())
        plain = [] if wanted.is_written else results
        results = plain + laid_out(results[0], wanted, builder)
        rewritten = builder.finish(results, {"composite": PRODUCTS})
        return self._hand_on(variable, wanted, self._call(rewritten, arguments, layer))

    def _weights(self, product: Product, layer: str) -> Any:
        """The weights of a product, packed when the package is built or, if computed, by it."""
        signature, call = product.chosen.signature, product.inner.value
        if is_batched(call):
            found = self._matrix(product)
            depth = round_up(product.edge.padded_channels, signature.channels_per_word)
            function = found.packed(signature, depth)
            return self._call(function, [self.read(found.source)], f"{layer}.weights")
        weights = stored_weights(signature, product.q, product.edge, product.chosen)
        return self.builder.tensor(f"{layer}.weights", weights)

    def _offsets(self, product: Product, layer: str) -> Any:
        """What sums of levels less an offset lack, where weights are computed: [N, 1, 1, O]."""
        call, offset = product.inner.value, product.chosen.signature.offset
        found = self._matrix(product)
        base = attributes(call)["weight_zero_point_x2"] // 2
        constant = -offset * base * shape_of(call.args[1].ty)[-1]
        numbers = {"offset": offset, "constant": constant}
        operands = [
            self.builder.tensor(f"{layer}.{name}", np.asarray(value, np.int32))
            for name, value in numbers.items()
        ]
        return self._call(found.offsets(), [self.read(found.source), *operands], f"{layer}.offsets")

    def _matrix(self, product: Product) -> Matrix:
        """The computed weights of a product."""
        source = product.actual[product.inner.value.args[1]]
        return self.matrices.get(source, Matrix(source))

    def _depthwise(self, variable: Any, found: Depthwise) -> Any:
        """A composite around a depthwise convolution whose taps lie side by side."""
        layer = str(variable.name)
        call = found.inner.value
        data, weight = call.args
        attrs, channels = attributes(call), shape_of(data.ty)[3]
        added, constant = self._added(found.function, found.inner.var, found.actual)
        bias = np.zeros(round_up(channels, BLOCK), np.int32)
        for one in (constant, found.correction):
            bias[: len(one)] += one
        marks, moved = self._marks(found.function, added, found.most(constant), found.actual)
        bias += np.int32(moved)
        builder = FunctionBuilder()
        arguments = [
            self.read(found.actual[data]),
            self.builder.tensor(f"{layer}.weights", found.weights),
            self.builder.tensor(f"{layer}.bias", bias),
        ]
        sums = packed_depthwise(
            *_declared(builder, arguments),
            window=list(shape_of(weight.ty)[:2]),
            strides=attrs["strides"],
            dilation=attrs["dilation"],
            offset=found.offset,
        )
        value = builder.emit(
            packed.take_channels(builder.emit(sums, "sums"), channels=channels), "taken"
        )
        inside = {found.inner.var: value, added: value}
        results = epilogue(
            found.function, inside, found.actual, builder, arguments, self._found, marks
        )
        wanted = self.handed.get(variable, Handed())
        results = ([] if wanted.is_written else results) + laid_out(results[0], wanted, builder)
        rewritten = builder.finish(results, {"composite": DEPTHWISE})
        return self._hand_on(variable, wanted, self._call(rewritten, arguments, layer))

    def _added(self, function: Any, sums: Any, actual: dict[Any, Any]) -> tuple[Any, Array]:
        """What to read for the sums of a composite, once a constant per channel is added to them.

        That is what adds one in the composite, a layer's own bias, if nothing else reads the sums;
        else the sums themselves, and a constant without channels.
        """
        none = sums, np.zeros(0, np.int32)
        readers = [b for b in bindings_of(function) if sums in variables_in(b.value)]
        if len(readers) != 1 or not is_op(readers[0].value, "relax.add"):
            return none
        others = [a for a in readers[0].value.args if not a.same_as(sums)]
        constant = self.source.params.get(str(actual[others[0]].name)) if others else None
        channels = shape_of(sums.ty)[-1]
        if constant is None or constant.dtype != np.int32:
            return none
        if constant.shape[-1:] != (channels,) or constant.size != channels:
            return none
        return readers[0].var, constant.reshape(channels)

    def _marks(
        self, function: Any, sums: Any, most: Array | None, actual: dict[Any, Any]
    ) -> tuple[Marks, int]:
        """How what reads sums is computed, and what is added to these, if it gains by that."""
        if most is None or not self.converts_slowly:
            return {}, 0
        return marks_of(function, sums, most, lambda p: self.source.params.get(str(actual[p].name)))

    def _hand_on(self, variable: Any, wanted: Handed, value: Any) -> Any:
        """Note what the readers of a product find of it; return what is read as it is."""
        if not (wanted.edges or wanted.pads):
            return value
        count = (not wanted.is_written) + len(wanted.edges) + len(wanted.pads)
        parts = [value]
        if count > 1:
            parts = [
                self.builder.emit(relax.TupleGetItem(value, index), f"{variable.name}.{index}")
                for index in range(count)
            ]
        result = None if wanted.is_written else parts.pop(0)
        for edge in wanted.edges:
            self.edges[_key(variable, edge)] = parts.pop(0)
        for pad, _ in wanted.pads:
            self.mapping[pad] = parts.pop(0)
        return result

    def _found(self, source: Any) -> tuple[Any, Layout | None]:
        """A tensor as an epilogue reads it, and the edge that it is inside of, if it is."""
        wanted = self.handed.get(source, Handed())
        for edge in wanted.pictures if wanted.is_written else ():
            if (tensor := self.edges.get(_key(source, edge))) is not None:
                return tensor, edge
        return self.read(source), None

    def _edge(self, source: Any, edge: Layout, layer: str) -> Any:
        """The tensor laid out for a product, made once for all products that read it alike."""
        key = _key(source, edge)
        if key not in self.edges:
            make = self._bytes if edge.form in ("bytes", "floats") else self._bits
            self.edges[key] = make(source, edge, layer)
        return self.edges[key]

    def _tiles(self, stored: Any, product: Product, layer: str) -> Any:
        """Transformed tiles of padded bytes, made once for all products that read them."""
        window = product.chosen.window
        key = (stored, TILES, *product.origin, window.transform)
        if key not in self.edges:
            function = transforming(stored, product.origin, window)
            self.edges[key] = self._call(function, [stored], tiles_for(layer))
        return self.edges[key]

    def _bytes(self, source: Any, edge: Layout, layer: str) -> Any:
        """Bytes with a halo, by a plain composite; or the tensor's own, if these are the same."""
        if self._lies_so(source, edge):
            return self.builder.emit(
                relax.op.reshape(self.read(source), edge.shape), f"{layer}.bytes"
            )
        origin, order = self._origin(source)
        if is_narrow(edge) and len(shape_of(origin.ty)) == 4:
            drawn = self.drawn.get(origin)
            function, arguments = narrow.picture(self, origin, drawn, order, edge)
            return self._call(function, arguments, f"{layer}.bytes")
        builder = FunctionBuilder()
        value = builder.param("p0", shape_of(origin.ty), dtype_of(origin.ty))
        if order is not None:
            value = builder.emit(relax.op.permute_dims(value, order), "turned")
        if len(value.ty.shape) == 2:
            shape = (1, 1, *shape_of(value.ty))
            value = builder.emit(relax.op.reshape(value, shape), "pixels")
        written = emit_store(builder, value, edge)
        function = builder.finish([written], {"composite": PLAIN})
        return self._call(function, [self.read(origin)], f"{layer}.bytes")

    def _origin(self, source: Any) -> tuple[Any, list[int] | None]:
        """What a product's data is the transpose of, and which; itself where it is none."""
        return self.turned.get(source, (source, None))

    def _lies_so(self, source: Any, edge: Layout) -> bool:
        """Whether a tensor that the package computes lies in memory as an edge wants it."""
        # What is the user's may end where it ends: kernels read some bytes further.
        if edge.rebased:
            return False
        is_ours = source not in self.turned and self._viewed(source) not in list(self.main.params)
        is_whole = dtype_of(source.ty) == edge.dtype and edge.padded_channels == edge.channels
        return is_ours and is_whole and edge.is_picture and not any(edge.halo)

    def _viewed(self, variable: Any) -> Any:
        """What a variable names the memory of anew; itself where it does not."""
        while variable in self.views:
            variable = self.views[variable]
        return variable

    def _bits(self, source: Any, edge: Layout, layer: str) -> Any:
        """Planes or tables, by an elementwise composite that reads bytes in whole blocks."""
        inner = Layout("bytes", edge.height, edge.width, edge.channels, edge.bits)
        data = self._edge(source, inner, layer)
        builder = FunctionBuilder()
        value = builder.param("p0", shape_of(data.ty), dtype_of(data.ty))
        levels = emit_load(builder, value, inner)
        written = emit_store(builder, levels, edge, edge.form)
        function = builder.finish([written], {"composite": "elementwise"})
        return self._call(function, [data], f"{layer}.{edge.form}")


def _corrected(product: Product, attrs: dict[str, Any]) -> tuple[int, Array, list[int]]:
    """What raw sums are multiplied by, what is added, and around which border other rows of it.

    Floats have neither zero points nor scales, and nobody knows the sums of computed weights.
    """
    signature, outputs = product.chosen.signature, product.q.shape[0]
    if signature.is_float or is_batched(product.inner.value):
        dtype = np.float32 if signature.is_float else np.int32
        return 1, np.zeros((1, round_up(outputs, BLOCK)), dtype), [0, 0, 0, 0]
    edge, window = product.edge, product.chosen.window
    return corrected(signature, product.q, edge.padded_channels, attrs, edge.fill, window)


def _declared(builder: FunctionBuilder, arguments: list[Any]) -> list[Any]:
    """Parameters of a composite for what `main` hands in."""
    kinds = [argument.ty for argument in arguments]
    return [builder.param(f"p{i}", shape_of(k), dtype_of(k)) for i, k in enumerate(kinds)]


def _key(source: Any, edge: Layout) -> tuple[Any, ...]:
    place = edge.fill, edge.block, edge.stored, edge.stacked, edge.phases, edge.rebased
    return (source, edge.form, *edge.halo, *place)
