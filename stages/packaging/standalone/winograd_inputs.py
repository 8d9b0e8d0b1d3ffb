"""From a composite that transforms the tiles of an image, as Winograd has them, to one PrimFunc."""

from __future__ import annotations

import numpy as np
from tvm.script.ir_builder import tirx as T

from hw.isa import isa_of
from hw.profile import Hardware
from stages.dialect.calls import attributes, dtype_of, shape_of
from stages.graph.composites import calls_in
from stages.kernels.winograd_transforms import transform_for
from stages.nodes import Buffer, Function, Index
from stages.packaging.emitting.addressing import divided, widths
from stages.packaging.emitting.item_kernel import Arguments, item_kernel
from stages.packaging.emitting.kernel import Kernel
from stages.packaging.emitting.winograd_text import pixels_text

NAME = "bk_pixels"
"""What transforms pixels of some channels is called so, and then their number."""


def lower_winograd_inputs(function: Function, symbol: str, hardware: Hardware) -> Kernel:
    """The kernel `symbol` of a composite that transforms images; items of work are rows of
    tiles."""
    (parameter,), (call,) = function.params, calls_in(function)
    *images, height, width, channels = shape_of(parameter.ty)
    attrs = attributes(call)
    top, left = attrs["origin"]
    transform = transform_for(attrs["strides"], attrs["tile"])
    down, across = map(transform.tiles_of, attrs["output"])
    step = transform.outputs * transform.stride
    _, product = shape_of(call.ty)
    dtype = dtype_of(call.ty)
    is_float, size = dtype == "float32", np.dtype(dtype).itemsize
    pixel = channels * (size if is_float else 1)
    parts = list(widths(channels, isa_of(hardware).bytes // size))
    text = "\n".join(
        pixels_text(
            transform, f"{NAME}{count}", count, width * pixel, pixel, size * product, is_float
        )[0]
        for count, _ in parts
    )

    def line(arguments: Arguments, tiles: Buffer, number: Index) -> None:
        data = arguments[parameter]
        image, y = divided(number, down)
        row = image * height + y * step + top
        first = T.bind((row * width + left) * channels)
        with T.serial(0, across) as x:
            window = T.bind(first + x * (step * channels))
            tile = T.bind((number * across + x) * channels)
            start = 0
            for count, times in parts:
                with T.serial(0, times) as part:
                    at = start + part * count
                    pointers = T.address_of(data[window + at]), T.address_of(tiles[tile + at])
                    T.evaluate(T.call_extern("void", f"{NAME}{count}", *pointers))
                start += count * times

    lines = down * (images[0] if images else 1)
    result = transform.products * product, dtype
    return item_kernel(symbol, [parameter], result, lines, line, text=text)
