"""Convolutions and pools of any layout as NCHW and OIHW, which later passes are written for."""

from __future__ import annotations

from collections.abc import Iterable

from tvm import relax

from stages.dialect import names
from stages.dialect.calls import is_op
from stages.graph.builder import ModelBuilder
from stages.kinds import Array
from stages.nodes import Call, Expr, Var

_POOLS = {
    names.MAX_POOL2D: relax.op.nn.max_pool2d,
    names.AVG_POOL2D: relax.op.nn.avg_pool2d,
}


def output_channel_axis(call: Call) -> tuple[int, int]:
    """Where a convolution's output channels are: in its weights, and in its result."""
    attrs = call.attrs
    layout = str(attrs.out_layout) or str(attrs.data_layout)
    return str(attrs.kernel_layout).index("O"), layout.index("C")


def convolution(
    builder: ModelBuilder,
    name: str,
    like: Call,
    data: Var,
    weight: Array,
    bias: Array | None,
) -> Var:
    """Emit a convolution `name` of data, with the layouts and attributes of another, `like`."""
    attrs = like.attrs
    layout = str(attrs.data_layout)
    out_layout = str(attrs.out_layout) or layout
    oihw = weight.transpose([str(attrs.kernel_layout).index(axis) for axis in "OIHW"])
    result = builder.emit(
        relax.op.nn.conv2d(
            _permuted(builder, data, layout, "NCHW", f"{name}.nchw"),
            builder.tensor(f"{name}.weight", oihw),
            strides=_ints(attrs.strides),
            padding=_ints(attrs.padding),
            dilation=_ints(attrs.dilation),
            groups=int(attrs.groups),
        ),
        name,
    )
    if bias is not None:
        addend = builder.tensor(f"{name}.bias_values", bias.reshape(1, -1, 1, 1))
        result = builder.emit(relax.op.add(result, addend), f"{name}.bias")
    return _permuted(builder, result, "NCHW", out_layout, f"{name}.{out_layout.lower()}")


def on_nchw(builder: ModelBuilder, value: Expr, name: str) -> Var:
    """Emit a binding `name`; a pool of another layout becomes one of NCHW between transposes."""
    pool = next((op for op in _POOLS if is_op(value, op)), None)
    if pool is None or not isinstance(value, Call) or str(value.attrs.layout) == "NCHW":
        return builder.emit(value, name)
    attrs = value.attrs
    layout, out_layout = str(attrs.layout), str(attrs.out_layout) or str(attrs.layout)
    call = _POOLS[pool](
        _permuted(builder, value.args[0], layout, "NCHW", f"{name}.nchw"),
        pool_size=_ints(attrs.pool_size),
        strides=_ints(attrs.strides),
        padding=_ints(attrs.padding),
        dilation=_ints(attrs.dilation),
        ceil_mode=bool(attrs.ceil_mode),
        count_include_pad=bool(attrs.count_include_pad),
    )
    result = builder.emit(call, name)
    return _permuted(builder, result, "NCHW", out_layout, f"{name}.{out_layout.lower()}")


def _permuted(builder: ModelBuilder, data: Var, before: str, after: str, name: str) -> Var:
    if before == after:
        return data
    return builder.emit(relax.op.permute_dims(data, [before.index(axis) for axis in after]), name)


def _ints(values: Iterable[int]) -> list[int]:
    return [int(value) for value in values]
