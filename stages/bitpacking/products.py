"""Bit-packing of integer models: products get a kernel signature, packed weights and edges.

A composite of products reads bytes with a halo and channels padded to whole words, made by a plain
composite in front of it, or bit planes made of such bytes; it writes its result as the user sees
it.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from tvm import relax
from tvm.ir import Call

from stages.bitpacking.choosing import signature_of, subject_of
from stages.bitpacking.edges import Layout, nhwc, store
from stages.bitpacking.folding import Window, fold_bias
from stages.kinds import Model, Table
from stages.qnn import packed
from stages.qnn.algebra import factor
from stages.qnn.builder import FunctionBuilder, bindings_of, outputs_of, remap, variables_in
from stages.qnn.composites import PLAIN, PRODUCTS, is_product
from stages.qnn.measured import Subject
from stages.qnn.packing import pack_weights
from stages.qnn.registry import attributes, dtype_of, is_op, shape_of
from stages.qnn.rewriting import Rewriting
from stages.qnn.signature import WORD_BYTES, KernelSignature

Array = np.ndarray[Any, Any]


def pack_products(model: Model, offers: Table, choices: Table) -> Model:
    """The model with every composite of products around its packed convolution."""
    return _Packer(model, offers, choices).run()


def subjects(*, model: Model, offers: Table) -> dict[str, Subject]:
    """Layer → what there is to choose for it, in a model that `pack_products` takes."""
    found = {}
    main = model.module["main"]
    for binding in bindings_of(main):
        if not isinstance(getattr(binding.value, "op", None), relax.GlobalVar):
            continue
        function = model.module[binding.value.op]
        if str(function.attrs["composite"]) == PRODUCTS:
            product = _product(function)
            actual = dict(zip(function.params, binding.value.args, strict=True))
            weight = model.params[str(actual[product.value.args[1]].name)]
            found[str(binding.var.name)] = subject_of(product.value, weight, offers)
    return found


def _product(function: Any) -> Any:
    """The binding of a composite's product."""
    return next(b for b in bindings_of(function) if is_product(b.value))


def _ohwi(weight: Array) -> Array:
    """Weights as those of a convolution."""
    return weight.reshape(weight.shape[0], 1, 1, -1) if weight.ndim == 2 else weight


class _Packer(Rewriting):
    """The walk over `main`: composites of products anew, everything else as it was."""

    def __init__(self, source: Model, offers: Table, choices: Table) -> None:
        super().__init__(source)
        self.offers, self.choices = offers, choices
        self.functions = relax.BlockBuilder()
        self.edges: dict[tuple[Any, ...], Any] = {}
        """(Tensor, and all that says how it lies) → the tensor laid out so."""
        self.turned = _turned(source)

    def run(self) -> Model:
        """Rewrite call by call."""
        for binding in bindings_of(self.main):
            self.mapping[binding.var] = self._value(binding)
        results = [self.mapping[output] for output in outputs_of(self.main)]
        functions = dict(self.functions.get().functions)
        return self.builder.model_after(self.source, results, functions)

    def _value(self, binding: Any) -> Any:
        expr, name = binding.value, str(binding.var.name)
        if isinstance(expr, relax.Var):
            return self.read(expr)
        if isinstance(expr, Call) and isinstance(expr.op, relax.GlobalVar):
            function = self.source.module[expr.op]
            if binding.var in self.turned:
                return None  # the only one to read it turns it on the way
            if str(function.attrs["composite"]) == PRODUCTS:
                return self._products(binding, function)
            arguments = [self.read(argument) for argument in expr.args]
            return self._call(function, arguments, name)
        return self.builder.emit(self.remapped(expr), name)

    def _call(self, function: Any, arguments: list[Any], name: str) -> Any:
        callee = self.functions.add_func(function, str(function.attrs["composite"]))
        return self.builder.emit_typed(Call(callee, arguments, ret_ty=function.ret_ty), name)

    # -- one composite -----------------------------------------------------------------------

    def _products(self, binding: Any, function: Any) -> Any:
        layer = str(binding.var.name)
        actual = dict(zip(function.params, binding.value.args, strict=True))
        product = _product(function)
        data, weight = product.value.args
        q = _ohwi(self.constants[actual[weight]])
        attrs = attributes(product.value)
        window = _window(product.value, q, attrs)
        signature = signature_of(product.value, q, self.offers, self.choices)
        edge = _layout(product.value, signature, window)
        point, channels = attrs["data_zero_point_x2"], edge.padded_channels
        scale = signature.scale * factor(point)
        bias, border = fold_bias(
            signature,
            scale,
            q,
            channels,
            point,
            attrs["weight_zero_point_x2"],
            attrs.get("pad_value", 0),
            edge.fill,
            window,
        )
        padded = np.pad(q, [(0, 0)] * 3 + [(0, channels - q.shape[3])])
        arguments = [self._edge(actual[data], edge, layer)]
        builder = FunctionBuilder()
        first = builder.param("p0", shape_of(arguments[0].ty), dtype_of(arguments[0].ty))
        operands = []
        for name, value in (("weights", pack_weights(signature, padded)), ("bias", bias)):
            arguments.append(self.builder.tensor(f"{layer}.{name}", value))
            operands.append(builder.param(f"p{len(arguments) - 1}", value.shape, str(value.dtype)))
        call = packed.packed_conv2d(
            first,
            *operands,
            signature=packed.signature_text(signature),
            scale=scale,
            channels=[q.shape[3], q.shape[0]],
            window=list(window.kernel),
            strides=list(window.strides),
            origin=[0, 0],
            output=list(window.output),
            border=border,
        )
        sums = builder.emit(call, "sums")
        value = builder.emit(packed.take_channels(sums, channels=q.shape[0]), "taken")
        if shape_of(value.ty) != shape_of(product.var.ty):
            value = builder.emit(relax.op.reshape(value, shape_of(product.var.ty)), "shaped")
        inside = {product.var: value}
        results = _epilogue(function, inside, actual, builder, arguments, self.read)
        rewritten = builder.finish(results, {"composite": PRODUCTS})
        return self._call(rewritten, arguments, layer)

    def _edge(self, source: Any, edge: Layout, layer: str) -> Any:
        """The tensor laid out for a product, made once for all products that read it alike."""
        key = (source, edge.form, tuple(edge.halo), edge.fill, edge.block, edge.stored)
        if key not in self.edges:
            make = self._bytes if edge.form == "bytes" else self._bits
            self.edges[key] = make(source, edge, layer)
        return self.edges[key]

    def _bytes(self, source: Any, edge: Layout, layer: str) -> Any:
        """Bytes with a halo, by a plain composite."""
        builder = FunctionBuilder()
        origin, order = self.turned.get(source, (source, None))
        value = builder.param("p0", shape_of(origin.ty), dtype_of(origin.ty))
        if order is not None:
            value = builder.emit(relax.op.permute_dims(value, order), "turned")
        if len(value.ty.shape) == 2:
            shape = (1, 1, 1, int(value.ty.shape[1]))
            value = builder.emit(relax.op.reshape(value, shape), "pixel")
        function = builder.finish([builder.emit(store(value, edge), "bytes")], {"composite": PLAIN})
        return self._call(function, [self.read(origin)], f"{layer}.bytes")

    def _bits(self, source: Any, edge: Layout, layer: str) -> Any:
        """Planes or tables, by an elementwise composite that reads bytes in whole blocks."""
        size = edge.height, edge.width
        blocks = Layout("bytes", *size, edge.channels, edge.bits)
        data = self._edge(source, blocks, layer)
        builder = FunctionBuilder()
        value = builder.param("p0", shape_of(data.ty), dtype_of(data.ty))
        call = packed.from_bytes(value, origin=[0, 0], size=list(size), dtype=f"uint{edge.bits}")
        written = builder.emit(store(builder.emit(call, "data"), edge), edge.form)
        function = builder.finish([written], {"composite": "elementwise"})
        return self._call(function, [data], f"{layer}.{edge.form}")


def _layout(call: Any, signature: KernelSignature, window: Window) -> Layout:
    """How a product's data lies for its kernel."""
    bits = int(dtype_of(call.args[0].ty).lstrip("uint"))
    edge = Layout(signature.form, *nhwc(call.args[0].ty), bits, signature.stored)
    edge.halo = list(window.padding)
    if edge.form == "bytes":
        # What a byte cannot hold, or means half of, the bias corrects per border class.
        point = attributes(call)["data_zero_point_x2"]
        edge.fill = min(max(0, point // 2), 255) if factor(point) == 1 else 0
        edge.block = WORD_BYTES
    return edge


def _turned(model: Model) -> dict[Any, tuple[Any, list[int]]]:
    """Transposes that only one product reads, as its data: what they turn, and their order."""
    main = model.module["main"]
    readers = Counter(v for binding in bindings_of(main) for v in variables_in(binding.value))
    calls = [
        (binding.var, binding.value, model.module[binding.value.op])
        for binding in bindings_of(main)
        if isinstance(getattr(binding.value, "op", None), relax.GlobalVar)
    ]
    data = {
        dict(zip(function.params, call.args, strict=True))[inner.value.args[0]]
        for _, call, function in calls
        if str(function.attrs["composite"]) == PRODUCTS  # a plain one reads what it reads as it is
        for inner in bindings_of(function)
        if is_product(inner.value)
    }
    found: dict[Any, tuple[Any, list[int]]] = {}
    for variable, call, function in calls:
        first, *others = bindings_of(function)
        is_turn = is_op(first.value, "relax.permute_dims") and len(others) == 1
        if is_turn and variable in data and readers[variable] == 1:
            found[variable] = call.args[0], [int(axis) for axis in first.value.attrs.axes]
    return found


def _epilogue(
    function: Any,
    inside: dict[Any, Any],
    actual: dict[Any, Any],
    builder: FunctionBuilder,
    arguments: list[Any],
    read: Any,
) -> list[Any]:
    """Emit what follows the product; its other operands become parameters."""
    outputs = outputs_of(function)
    for binding in bindings_of(function):
        if binding.var in inside or binding.var in outputs:
            continue
        for argument in binding.value.args:
            if isinstance(argument, relax.Var) and argument not in inside:
                arguments.append(read(actual[argument]))
                inside[argument] = builder.param(
                    f"p{len(arguments) - 1}", shape_of(argument.ty), dtype_of(argument.ty)
                )
        inside[binding.var] = builder.emit(remap(binding.value, inside), "v")
    returned = {b.var: b.value for b in bindings_of(function) if b.var in outputs}
    return [inside[returned[output]] for output in outputs]


def _window(call: Any, q: Array, attrs: dict[str, Any]) -> Window:
    height, width, _ = nhwc(call.args[0].ty)
    return Window(
        kernel=(q.shape[1], q.shape[2]),
        strides=tuple(attrs.get("strides", (1, 1))),
        padding=tuple(attrs.get("padding", (0, 0, 0, 0))),
        size=(height, width),
        output=nhwc(call.ty)[:2],
    )
