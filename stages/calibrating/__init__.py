"""Calibrating: a float model becomes a quantized one, by what its tensors hold on sample inputs.

With 8 bits, every tensor between layers gets a scale and a zero point, weights int8 or uint8, and
biases int32; the model is handed on in integer operators whose arithmetic is ONNX Runtime's. With
fewer, it is handed on in float32 with QONNX's quantizers, which `quantizing` turns into integers.
"""

from __future__ import annotations

import tvm
from tvm import relax

from stages.calibrating import insert_low_bit_quantizers
from stages.calibrating.fold_into_layers import fold
from stages.calibrating.insert_quantizers import insert
from stages.calibrating.observe_ranges import Ranges, ranges, samples_of
from stages.calibrating.range_log import ATTRIBUTE, RangeLog, read
from stages.calibrating.roles import roles
from stages.dialect.calls import dtype_of, tensor_types
from stages.errors import StageError
from stages.graph.bindings import bindings_of
from stages.graph.simplify_graph import simplify
from stages.kinds import Golden, Model
from stages.numerics.qdq import to_integers
from stages.options import CalibrateOptions

__all__ = ["in_float", "quantized", "run"]


def run(*, model: Model, samples: Golden, options: CalibrateOptions) -> Model:
    """Quantize a float model.

    `model` is float32 throughout, as importing gives it; `samples.inputs` maps every graph input
    to its calibration values [samples, *shape in the graph], in the model's own units. The
    attribute `numerics` of the result is `onnx` with 8 bits; with fewer it is `simulated`: the
    float model with its quantizers is its own reference. StageError for
    samples that do not fit the model, and for tensors that are not finite on them.
    """
    _refuse_quantized(model)
    made = quantized(model=model, samples=samples, options=options)
    return made if options.is_narrow else to_integers(made, "onnx")


def _refuse_quantized(model: Model) -> None:
    main = model.module["main"]
    for variable in (*main.params, *(binding.var for binding in bindings_of(main))):
        for kind in tensor_types(variable.ty):
            if dtype_of(kind).startswith(("int8", "uint8", "int4", "uint4", "int16")):
                raise StageError(
                    f"'{variable.name}' is {dtype_of(kind)}: the model is quantized already",
                    hint="leave out calibration and quantization; a quantized file brings its own",
                )


def quantized(*, model: Model, samples: Golden, options: CalibrateOptions) -> Model:
    """The model with quantizers, still computing in float32; its attribute `ranges` has the ranges
    that they were made of."""
    calibration = samples_of(model, samples)
    folded = _folded(model)
    found = ranges(folded, calibration, _ranged(folded, options), options.method)
    return _inserted(folded, found, options)


def in_float(*, model: Model, calibrated: Model, options: CalibrateOptions) -> tuple[Model, Model]:
    """The float model as it was quantized, and the same with its quantizers, both in float32.

    `calibrated` is what `run` made of `model` by these options. Variables of the first have the
    same names in the second, where quantizers and dequantizers stand behind and between them.
    """
    folded = _folded(model)
    text = str(calibrated.module["main"].attrs[ATTRIBUTE])
    return folded, _inserted(folded, read(text), options)


def _folded(model: Model) -> Model:
    # Transposes stand between a product and its bias in channels-last files, and folding puts
    # some where a convolution itself is channels-last: they sink before and after.
    return simplify(fold(simplify(model)))


def _ranged(folded: Model, options: CalibrateOptions) -> list[str]:
    """The names of the variables whose ranges are needed."""
    main = folded.module["main"]
    wanted = (
        insert_low_bit_quantizers.quantized_reads(folded)
        if options.is_narrow
        else roles(main).quantized
    )
    return [str(variable.name) for variable in wanted]


def _inserted(folded: Model, found: Ranges, options: CalibrateOptions) -> Model:
    noted = RangeLog(found)
    if options.is_narrow:
        made = insert_low_bit_quantizers.insert(folded, noted, options)
    else:
        made = insert(folded, roles(folded.module["main"]), noted, options)
    main = made.module["main"].with_attr(ATTRIBUTE, noted.text())
    return Model(tvm.IRModule({relax.GlobalVar("main"): main}), made.params)
