"""What the readers of a product's result want of it, so that it is written that way at once.

A picture with a halo around it, which the window of the next product or of a depthwise convolution
reaches into, costs nothing to make where its values are computed, and a pass over memory anywhere
else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from tvm import relax

from stages.bitpacking.choosing import Work, in_phases, kernel_of
from stages.bitpacking.edges import Layout, nhwc, pictures
from stages.bitpacking.rounding import ends_of, most_of
from stages.bitpacking.window import Chosen
from stages.kinds import Model, Table
from stages.options import LegalizeOptions
from stages.qnn.algebra import factor, numerators
from stages.qnn.builder import bindings_of, calls_of, outputs_of, variables_in
from stages.qnn.composites import PLAIN, PRODUCTS, is_batched, is_product, max_pool_of
from stages.qnn.methods import BYTE_LIMIT, WORD_BYTES
from stages.qnn.registry import attributes, dtype_of, is_op, shape_of, storage_dtype
from stages.qnn.simplifying import order_of

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Product:
    """One call of a composite of products: what it multiplies, by which kernel, how data lies."""

    function: Any
    actual: dict[Any, Any]
    """The composite's parameter → what `main` hands in."""
    inner: Any
    """The binding of the product."""
    q: Array
    """Weights [O, KH, KW, C]."""
    chosen: Chosen
    edge: Layout
    origin: tuple[int, int] = (0, 0)
    """Where the first window begins, in an edge with a larger halo."""

    @property
    def data(self) -> Any:
        """The variable of `main` whose values are multiplied."""
        return self.actual[self.inner.value.args[0]]

    def most(self, constant: Array) -> Array | None:
        """The largest size of the sums of a channel plus a constant, int64 [O]; None where the
        weights are computed, or floats."""
        call = self.inner.value
        if is_batched(call) or self.chosen.signature.is_float:
            return None
        levels = numerators(self.q, attributes(call)["weight_zero_point_x2"])
        return most_of(levels, ends_of(call), constant)


@dataclass
class Handed:
    """How a result is read."""

    edges: list[Layout] = field(default_factory=list)
    """As data of products that want just this."""
    pads: list[tuple[Any, Any]] = field(default_factory=list)
    """By paddings: their variables in `main`, and the calls inside their composites."""
    is_added: bool = False
    """By what follows another product, position by position, inside an edge if there is one."""
    is_read: bool = False
    """As it is."""

    @property
    def pictures(self) -> list[Layout]:
        """The edges inside of which it can be read."""
        return [edge for edge in self.edges if edge.is_picture]

    @property
    def is_written(self) -> bool:
        """Whether all readers find it in another form."""
        is_found = bool(self.pictures) if self.is_added else bool(self.edges or self.pads)
        return is_found and not self.is_read


def products_of(
    model: Model, options: LegalizeOptions, offers: Table, choices: Table
) -> dict[Any, Product]:
    """Variable of `main` → the product that gives it."""
    works, found = works_of(model, options), {}
    phased = in_phases(model.module, works, offers)
    for binding, function in calls_of(model):
        if (work := works.get(binding.var)) is not None:
            actual = dict(zip(function.params, binding.value.args, strict=True))
            chosen = kernel_of(work, offers, choices, phased)
            edge = _layout(work.call, chosen)
            found[binding.var] = Product(
                function, actual, product_of(function), work.weight, chosen, edge
            )
    return _sharing(found)


def works_of(model: Model, options: LegalizeOptions) -> dict[Any, Work]:
    """Variable of `main` → the product that gives it, whose weights are [O, KH, KW, C]."""
    found = {}
    for binding, function in calls_of(model):
        if str(function.attrs["composite"]) == PRODUCTS:
            actual = dict(zip(function.params, binding.value.args, strict=True))
            call = product_of(function).value
            q = _weights(model, call, actual[call.args[1]])
            name = str(binding.var.name)
            wish = options.algorithm_of(name)
            found[binding.var] = Work(
                name, actual[call.args[0]], call, q, WORD_BYTES, wish, in_blocks=False
            )
    return found


def _weights(model: Model, call: Any, variable: Any) -> Array:
    """The weights of a product, [O, KH, KW, C]; where they are computed, any that may be."""
    if not is_batched(call):
        q = model.params[str(variable.name)]
        return q.reshape(q.shape[0], 1, 1, -1) if q.ndim == 2 else q
    _, outputs, depth = shape_of(variable.ty)
    any_byte = np.arange(-BYTE_LIMIT, BYTE_LIMIT, dtype=np.int8)
    return np.resize(any_byte, (outputs, 1, 1, depth))


def _sharing(products: dict[Any, Product]) -> dict[Any, Product]:
    """The same, where what one reads without a halo is what another one reads with it."""
    widest: dict[tuple[Any, int], Layout] = {}
    for product in products.values():
        edge, key = product.edge, (product.data, product.edge.phases)
        if edge.form == "bytes" and edge.stacked == 1:
            widest[key] = max(widest.get(key, edge), edge, key=lambda e: sum(e.halo))
    found = {}
    for variable, product in products.items():
        edge = product.edge
        wide = widest.get((product.data, edge.phases))
        is_alike = edge.form == "bytes" and edge.stacked == 1 and not any(edge.halo)
        if wide is not None and is_alike and not product.chosen.signature.is_whole:
            origin = (wide.halo[0], wide.halo[1])
            product = replace(product, edge=wide, origin=origin)
        found[variable] = product
    return found


def handed(
    model: Model, products: dict[Any, Product], more: Collection[Any] = ()
) -> dict[Any, Handed]:
    """Variable of `main` → how it is read, for every product or maximum pool of bytes with one
    result that is a picture, and for `more` of them."""
    main = model.module["main"]
    functions = {binding.var: function for binding, function in calls_of(model)}
    found = {
        variable: Handed()
        for variable, function in functions.items()
        if (variable in products or variable in more or max_pool_of(function) is not None)
        and isinstance(variable.ty, relax.TensorType)
        and len(shape_of(variable.ty)) == 4
    }
    for binding in bindings_of(main):
        for variable in variables_in(binding.value):
            if variable in found:
                _read(found[variable], variable, binding, products, functions)
    return found


def _read(
    result: Handed,
    variable: Any,
    binding: Any,
    products: dict[Any, Product],
    functions: dict[Any, Any],
) -> None:
    """Note one reading of a result."""
    reader, pad = products.get(binding.var), _padding(functions.get(binding.var))
    is_added = reader is not None and _is_added(variable, reader)
    if reader is not None and _is_haloed(variable, binding.value, reader):
        if reader.edge not in result.edges:
            result.edges.append(reader.edge)
        is_rest = len(_readers(reader, variable)) > 1
        result.is_added |= is_rest and is_added
        result.is_read |= is_rest and not is_added
    elif pad is not None:
        result.pads.append((binding.var, pad))
    elif is_added and reader is not None and not reader.data.same_as(variable):
        result.is_added = True
    else:
        result.is_read = True


def _is_haloed(variable: Any, call: Any, reader: Product) -> bool:
    """Whether all that a product reads of a picture is the picture with a halo around it, or
    rebased."""
    edge = reader.edge
    is_data = reader.data.same_as(variable) and sum(variable.same_as(a) for a in call.args) == 1
    is_bytes = edge.form == "bytes" and dtype_of(variable.ty) == "uint8"
    is_whole = edge.padded_channels == edge.channels and edge.stacked == 1
    is_own = any(edge.halo) or edge.phases > 1 or edge.rebased
    return is_data and is_bytes and is_whole and is_own


def _is_added(variable: Any, reader: Product) -> bool:
    """Whether what a product reads of a picture, but as its data, is added to its results, or the
    like."""
    shape = shape_of(variable.ty)
    is_alike = shape == shape_of(reader.inner.var.ty) and shape[0] == 1
    return is_alike and dtype_of(variable.ty) == "uint8"


def _readers(product: Product, variable: Any) -> list[Any]:
    """The operators of a composite that read a variable of `main`."""
    inside = [p for p, a in product.actual.items() if a.same_as(variable)]
    values = [b.value for b in bindings_of(product.function)]
    return [v for v in values if any(p in variables_in(v) for p in inside)]


def _padding(function: Any) -> Any:
    """The padding of height and width that a plain composite is, if it is nothing else."""
    if function is None or str(function.attrs["composite"]) != PLAIN:
        return None
    first, *rest = bindings_of(function)
    if len(rest) != 1 or not is_op(first.value, "relax.nn.pad"):
        return None
    width = [int(count) for count in first.value.attrs.pad_width]
    is_picture = len(width) == 8 and not any((*width[:2], *width[6:]))
    return first.value if is_picture and len(outputs_of(function)) == 1 else None


def product_of(function: Any) -> Any:
    """The binding of a composite's product."""
    return next(b for b in bindings_of(function) if is_product(b.value))


def reads_once(function: Any) -> bool:
    """Whether nothing but the product reads its data in a composite."""
    data = product_of(function).value.args[0]
    return sum(data in variables_in(inner.value) for inner in bindings_of(function)) == 1


def _layout(call: Any, chosen: Chosen) -> Layout:
    """How a product's data lies for its kernel."""
    signature = chosen.signature
    dtype = dtype_of(call.args[0].ty)
    bits = 8 * storage_dtype(dtype).itemsize if signature.is_float else int(dtype.lstrip("uint"))
    edge = Layout(signature.form, *nhwc(call.args[0].ty), bits, signature.stored)
    edge.stacked, edge.phases, edge.halo = chosen.stacked, chosen.phases, chosen.halo
    edge.pictures = pictures(call.args[0].ty)
    if signature.is_float:
        edge.block, edge.element = signature.channels_per_word, dtype
    if edge.form == "bytes":
        # What a byte cannot hold, or means half of, the bias corrects per border class.
        point = attributes(call)["data_zero_point_x2"]
        edge.fill = min(max(0, point // 2), 255) if factor(point) == 1 else 0
        edge.block = chosen.unit
    return edge


def turned(model: Model, readers: Counter[Any]) -> dict[Any, tuple[Any, list[int]]]:
    """Transposes that only one product reads, as its data: what they turn, and their order."""
    calls = calls_of(model)
    data = set()
    for binding, function in calls:
        # A plain composite reads it as it is.
        if str(function.attrs["composite"]) == PRODUCTS and reads_once(function):
            actual = dict(zip(function.params, binding.value.args, strict=True))
            data.add(actual[product_of(function).value.args[0]])
    found: dict[Any, tuple[Any, list[int]]] = {}
    for binding, function in calls:
        axes = turn_of(function)
        if axes and binding.var in data and readers[binding.var] == 1:
            found[binding.var] = binding.value.args[0], axes
    return found


def turn_of(function: Any) -> list[int]:
    """The axes of the transpose that a composite is; none if it is anything else."""
    first, *others = bindings_of(function)
    is_turn = is_op(first.value, "relax.permute_dims") and len(others) == 1
    return list(order_of(first.value)) if is_turn else []
