"""Names of this room's operators that passes ask for; see `stages.dialect.names`."""

from __future__ import annotations

from stages.dialect.names import PREFIX

QNN_QUANTIZE_LINEAR = f"{PREFIX}quantize_linear"
QNN_DEQUANTIZE_LINEAR = f"{PREFIX}dequantize_linear"
QNN_TABLE = f"{PREFIX}table"
QNN_SOFTMAX = f"{PREFIX}softmax"
QNN_QLINEAR_SOFTMAX = f"{PREFIX}qlinear_softmax"
QNN_RESCALE = f"{PREFIX}rescale"
QNN_DYNAMIC_SCALE = f"{PREFIX}dynamic_scale"
QNN_SIGN = f"{PREFIX}sign"
QNN_TFLITE_ADD = f"{PREFIX}tflite_add"
QNN_QLINEAR_ADD = f"{PREFIX}qlinear_add"
QNN_BATCH_NORM = f"{PREFIX}batch_norm"
QNN_QUANT = f"{PREFIX}quant"
QNN_BIPOLAR_QUANT = f"{PREFIX}bipolar_quant"
QNN_MULTI_THRESHOLD = f"{PREFIX}multi_threshold"
QNN_TFLITE_REQUANTIZE = f"{PREFIX}tflite_requantize"
QNN_TFLITE_RESCALE = f"{PREFIX}tflite_rescale"
