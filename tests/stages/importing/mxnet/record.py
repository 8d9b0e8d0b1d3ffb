"""Records what MXNet itself computes, for `recorded.npz`: run by a Python that has MXNet 1.9.1.

    python tests/stages/importing/mxnet/record.py tests/stages/importing/mxnet/recorded.npz

Each case is a symbol, its parameters, one input and the outputs of MXNet's CPU kernels on a
processor with VNNI (oneDNN runs its int8 kernels without saturating in between there).
"""

# mypy: ignore-errors
# ruff: noqa: ANN001, ANN002, ANN003, ANN201, ANN202, B905, PTH
from __future__ import annotations

import json
import logging
import sys
import tempfile
from pathlib import Path

import mxnet as mx
import numpy as np

logging.disable(logging.CRITICAL)


class Cases:
    def __init__(self) -> None:
        self.arrays = {}

    def add(self, name, symbol, params, data) -> None:
        """Run a symbol and keep everything."""
        executor = symbol.bind(
            mx.cpu(),
            args={n: params[n] if n in params else mx.nd.array(data)
                  for n in symbol.list_arguments()},
            aux_states={n: params[n] for n in symbol.list_auxiliary_states()},
        )  # fmt: skip
        outputs = [value.asnumpy() for value in executor.forward(is_train=False)]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "params"
            mx.nd.save(str(path), {f"arg:{n}": v for n, v in params.items()})
            stored = path.read_bytes()
        self.arrays[f"{name}/symbol"] = np.frombuffer(symbol.tojson().encode(), np.uint8)
        self.arrays[f"{name}/params"] = np.frombuffer(stored, np.uint8)
        self.arrays[f"{name}/data"] = data
        for i, output in enumerate(outputs):
            self.arrays[f"{name}/output{i}"] = output


def normal(rng, *shape, scale=1.0):
    return (rng.standard_normal(shape) * scale).astype(np.float32)


def range_variables(name, low, high, params):
    ends = []
    for end, value in (("min", low), ("max", high)):
        variable = f"{name}_{end}"
        params[variable] = mx.nd.array([value], dtype="float32")
        ends.append(mx.sym.Variable(variable))
    return ends


def quantized(x, dtype, calibrated=None):
    extra = {}
    if calibrated is not None:
        extra = {"min_calib_range": calibrated[0], "max_calib_range": calibrated[1]}
    return mx.sym.contrib.quantize_v2(x, out_type=dtype, name=f"quantize_{dtype}", **extra)


def single_operators(cases):
    rng = np.random.default_rng(0)
    x = mx.sym.Variable("data")
    image = normal(rng, 1, 4, 6, 7)
    for dtype in ("int8", "uint8", "auto"):
        for known in (None, (-2.1, 1.7), (0.0, 2.3)):
            if dtype == "auto" and known is None:
                continue
            q = quantized(x, dtype, known)
            label = "free" if known is None else f"{known[0]}"
            back = mx.sym.contrib.dequantize(q[0], q[1], q[2])
            cases.add(f"quantize_v2 {dtype} {label}", mx.sym.Group([q, back]), {}, image)
    for dtype in ("int8", "uint8"):
        params = {}
        low, high = range_variables("given", -1.3 if dtype == "int8" else 0, 2.2, params)
        q = mx.sym.contrib.quantize(x, low, high, out_type=dtype, name="quantize")
        cases.add(f"quantize {dtype}", q, params, image)
    for dtype, known in (("int8", (-2.1, 1.7)), ("uint8", (0.0, 2.3))):
        q = quantized(x, dtype, known)
        triple = (q[0], q[1], q[2])
        for kind, options in {
            "max": {"pool_type": "max", "kernel": (2, 2), "stride": (2, 2)},
            "max full": {"pool_type": "max", "kernel": (3, 3), "stride": (2, 2),
                         "pooling_convention": "full"},
            "max pad": {"pool_type": "max", "kernel": (3, 3), "stride": (2, 2), "pad": (1, 1)},
            "avg": {"pool_type": "avg", "kernel": (3, 2), "stride": (1, 2)},
            "avg pad": {"pool_type": "avg", "kernel": (3, 3), "stride": (2, 2), "pad": (1, 1)},
            "avg pad excluded": {"pool_type": "avg", "kernel": (3, 3), "stride": (2, 2),
                                 "pad": (1, 1), "count_include_pad": False},
            "avg full": {"pool_type": "avg", "kernel": (3, 3), "stride": (2, 2),
                         "pooling_convention": "full"},
            "avg global": {"pool_type": "avg", "kernel": (1, 1), "global_pool": True},
        }.items():  # fmt: skip
            pooled = mx.sym.contrib.quantized_pooling(*triple, name="pool", **options)
            cases.add(f"pooling {dtype} {kind}", pooled, {}, image)
        if dtype == "int8":  # uint8 comes out as the same bits, read as int8
            relu = mx.sym.contrib.quantized_act(*triple, act_type="relu", name="act")
            cases.add(f"act {dtype}", relu, {}, image)
            batch_norm(cases, rng, triple, image)
        flat = mx.sym.contrib.quantized_flatten(*triple, name="flat")
        cases.add(f"flatten {dtype}", flat, {}, image)
        for bias in (False, True):
            dense(cases, rng, dtype, known, bias)
    for left in ("int8", "uint8"):
        for right in ("int8", "uint8"):
            a = quantized(x, left, (-2.1, 1.7) if left == "int8" else (0, 2.3))
            b = quantized(x * 0.7 + 0.4, right, (-1.1, 1.2) if right == "int8" else (0, 1.9))
            for calibration in ({}, {"min_calib_range": -3.0, "max_calib_range": 3.3}):
                total = mx.sym.contrib.quantized_elemwise_add(
                    a[0], b[0], a[1], a[2], b[1], b[2], name="add", **calibration
                )
                cases.add(f"add {left} {right} {len(calibration)}", total, {}, image)
            joined = mx.sym.contrib.quantized_concat(
                a[0], b[0], a[1], a[2], b[1], b[2], num_args=2, dim=1, name="concat"
            )
            cases.add(f"concat {left} {right}", joined, {}, image)


def batch_norm(cases, rng, triple, image):
    params = {f"n_{n}": mx.nd.array(rng.random(4) + 0.5)
              for n in ("gamma", "beta", "moving_mean", "moving_var")}  # fmt: skip
    names = ("gamma", "beta", "moving_mean", "moving_var")
    for fixed in (False, True):
        norm = mx.sym.contrib.quantized_batch_norm(
            triple[0], *(mx.sym.Variable(f"n_{n}") for n in names), triple[1], triple[2],
            fix_gamma=fixed, eps=2e-3, min_calib_range=-2.0, max_calib_range=1.6, name="n",
        )  # fmt: skip
        cases.add(f"batch_norm {fixed}", norm, params, image)


def operands(q, ranges, bias):
    """Inputs of a quantized layer by the names that MXNet gives them."""
    named = {"data": q[0], "weight": mx.sym.Variable("w"), "min_data": q[1], "max_data": q[2]}
    if bias:
        named["bias"] = mx.sym.Variable("b")
    ends = ("min_weight", "max_weight", "min_bias", "max_bias")
    return named | dict(zip(ends, ranges, strict=False))


def dense(cases, rng, dtype, known, bias):
    params = {"w": mx.nd.array(rng.integers(-127, 128, (5, 168)), dtype="int8")}
    q = quantized(mx.sym.Variable("data"), dtype, known)
    ranges = range_variables("w", -0.6, 0.9, params)
    if bias:
        params["b"] = mx.nd.array(rng.integers(-127, 128, 5), dtype="int8")
        ranges += range_variables("b", -2.2, 1.0, params)
    total = mx.sym.contrib.quantized_fully_connected(
        **operands(q, ranges, bias), num_hidden=5, no_bias=not bias, name="dense"
    )
    image = normal(rng, 3, 4, 6, 7)
    cases.add(f"fully_connected {dtype} {bias}", total, params, image)
    for calibration in ({}, {"min_calib_range": -40.0, "max_calib_range": 33.0}):
        for out in ("int8", "uint8") if calibration else ("int8",):
            again = mx.sym.contrib.requantize(
                total[0], total[1], total[2], out_type=out, name="requantize", **calibration
            )
            label = f"requantize {dtype} {bias} {out} {len(calibration)}"
            cases.add(label, again, params, image)


def plain_convolution(cases):
    rng = np.random.default_rng(1)
    for bias in (False, True):
        q = quantized(mx.sym.Variable("data"), "uint8", (0.0, 2.3))
        params = {"w": mx.nd.array(rng.integers(-127, 128, (6, 4, 3, 3)), dtype="int8")}
        ranges = range_variables("w", -0.6, 0.9, params)
        if bias:
            params["b"] = mx.nd.array(rng.integers(-127, 128, 6), dtype="int8")
            ranges += range_variables("b", -2.2, 1.0, params)
        total = mx.sym.contrib.quantized_conv(
            **operands(q, ranges, bias), kernel=(3, 3), pad=(1, 1), stride=(2, 1),
            num_filter=6, no_bias=not bias, name="conv",
        )  # fmt: skip
        cases.add(f"conv {bias}", total, params, normal(rng, 2, 4, 6, 7))


def network():
    """Residual blocks, a depthwise convolution, two branches, ReLU6 and plain ends."""
    sym = mx.sym

    def normed(x, name, act=None, **options):
        x = sym.Convolution(x, name=name, no_bias=True, **options)
        x = sym.BatchNorm(x, fix_gamma=False, eps=1e-5, name=f"{name}_bn")
        if act == "relu":
            x = sym.Activation(x, act_type="relu", name=f"{name}_relu")
        if act == "relu6":
            x = sym.clip(x, a_min=0, a_max=6, name=f"{name}_relu6")
        return x

    x = normed(sym.Variable("data"), "stem", "relu", kernel=(3, 3), pad=(1, 1), num_filter=16)
    y = normed(x, "deep", "relu6", kernel=(3, 3), pad=(1, 1), num_filter=16, num_group=16)
    y = normed(y, "point", kernel=(1, 1), num_filter=16)
    x = sym.Activation(sym.elemwise_add(y, x, name="plus"), act_type="relu", name="plus_relu")
    z = normed(x, "second", kernel=(3, 3), pad=(1, 1), num_filter=16)
    x = sym.elemwise_add(z, x, name="bare_plus")
    x = sym.Pooling(x, kernel=(2, 2), stride=(2, 2), pool_type="max", name="pool")
    a = sym.Convolution(x, kernel=(1, 1), num_filter=8, name="left")
    b = sym.Convolution(x, kernel=(3, 3), pad=(1, 1), num_filter=8, name="right")
    b = sym.Activation(b, act_type="relu", name="right_relu")
    x = sym.Concat(a, b, dim=1, name="both")
    x = sym.Pooling(x, global_pool=True, kernel=(1, 1), pool_type="avg", name="mean")
    x = sym.FullyConnected(sym.Flatten(x, name="flat"), num_hidden=12, name="hidden")
    x = sym.Activation(x, act_type="relu", name="hidden_relu")
    return sym.FullyConnected(x, num_hidden=5, name="last")


def networks(cases):
    from mxnet.contrib.quantization import quantize_model_mkldnn

    for seed, width, grain in ((2, "auto", "tensor-wise"), (3, "int8", "channel-wise")):
        rng, symbol = np.random.default_rng(seed), network()
        shape = (1, 3, 10, 10)
        shapes, _, auxiliary = symbol.infer_shape(data=shape)
        args = {
            n: mx.nd.array(rng.random(s) + 0.5 if "gamma" in n else normal(rng, *s, scale=0.3))
            for n, s in zip(symbol.list_arguments(), shapes) if n != "data"
        }  # fmt: skip
        aux = {
            n: mx.nd.array(rng.random(s) + 0.5 if "var" in n else normal(rng, *s, scale=0.2))
            for n, s in zip(symbol.list_auxiliary_states(), auxiliary)
        }
        sample = normal(rng, *shape)
        q, args_q, aux_q = quantize_model_mkldnn(
            symbol, args, aux, ctx=mx.cpu(), calib_mode="naive", num_calib_examples=1,
            calib_data=mx.io.NDArrayIter(data=sample, batch_size=1, label=None),
            quantized_dtype=width, label_names=None, quantize_granularity=grain,
        )  # fmt: skip
        params = {**args_q, **aux_q}
        cases.add(f"network {width}", q, params, sample)
        content = json.loads(q.tojson())
        for node in content["nodes"]:
            if node["op"] == "_contrib_quantize_v2":
                node["attrs"] = {"out_type": "int8"}
        cases.add(f"network {width} open", mx.sym.load_json(json.dumps(content)), params, sample)


def floats(cases):
    """Ordinary operators in float32, one at a time."""
    sym, rng = mx.sym, np.random.default_rng(4)
    x = sym.Variable("data")
    y = x * 0.5
    image = normal(rng, 2, 4, 7, 6)
    norm = {f"n_{n}": mx.nd.array(rng.random(4) + 0.5)
            for n in ("gamma", "beta", "moving_mean", "moving_var")}  # fmt: skip
    conv = {"c_weight": mx.nd.array(normal(rng, 6, 2, 3, 2)), "c_bias": mx.nd.array(normal(rng, 6))}
    full = {"f_weight": mx.nd.array(normal(rng, 5, 168)), "f_bias": mx.nd.array(normal(rng, 5))}
    window = {"kernel": (3, 2), "stride": (2, 2), "pad": (1, 1)}
    for name, symbol, params in (
        (
            "Convolution",
            sym.Convolution(x, num_filter=6, num_group=2, dilate=(2, 1), name="c", **window),
            conv,
        ),
        ("FullyConnected", sym.FullyConnected(x, num_hidden=5, name="f"), full),
        ("BatchNorm", sym.BatchNorm(x, fix_gamma=False, name="n"), norm),
        ("BatchNorm fixed", sym.BatchNorm(x, name="n"), norm),
        ("relu", sym.Activation(x, act_type="relu"), {}),
        ("sigmoid", sym.Activation(x, act_type="sigmoid"), {}),
        ("tanh", sym.tanh(x), {}),
        ("exp", sym.exp(x), {}),
        ("LeakyReLU", sym.LeakyReLU(x, slope=0.1), {}),
        ("max", sym.Pooling(x, pool_type="max", **window), {}),
        ("max full", sym.Pooling(x, pool_type="max", pooling_convention="full", **window), {}),
        ("avg", sym.Pooling(x, pool_type="avg", **window), {}),
        ("avg excluded", sym.Pooling(x, pool_type="avg", count_include_pad=False, **window), {}),
        ("avg global", sym.Pooling(x, pool_type="avg", global_pool=True, kernel=(1, 1)), {}),
        ("flatten", sym.Flatten(x), {}),
        ("reshape", sym.Reshape(x, shape=(0, -1, 7)), {}),
        ("transpose", sym.transpose(x, axes=(0, 2, 3, 1)), {}),
        ("expand_dims", sym.expand_dims(x, axis=-1), {}),
        ("concat", sym.Concat(x, y, dim=1), {}),
        ("sum", sym.elemwise_add(x, y), {}),
        ("difference", sym.broadcast_sub(x, y), {}),
        ("product", sym.elemwise_mul(x, y), {}),
        ("quotient", (x + 9) / 7 - 2, {}),
        ("clip", sym.clip(x, a_min=-0.3, a_max=0.8), {}),
        ("slice_axis", sym.slice_axis(x, axis=2, begin=-5, end=6), {}),
        ("split", sym.SliceChannel(x, num_outputs=2, axis=1)[1], {}),
        ("softmax inside", sym.softmax(x, axis=-1) + 1, {}),
        ("dropout", sym.Dropout(x, p=0.5), {}),
    ):
        cases.add(f"float {name}", symbol, params, image)


if __name__ == "__main__":
    found = Cases()
    floats(found)
    single_operators(found)
    plain_convolution(found)
    networks(found)
    np.savez_compressed(sys.argv[1], **found.arrays)
    print(len(found.arrays), "arrays,", Path(sys.argv[1]).stat().st_size, "bytes")
