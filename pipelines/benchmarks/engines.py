"""Engines a user could pick instead, each timed on a model file with fixed inputs.

An engine gets the whole file and says what it computes, so that times are only shown of something
that runs the same network. None of them belongs to bitkiln; the extra `peers` installs them.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hw.profile import Hardware
from pipelines.benchmarks import probe_process
from pipelines.benchmarks.variants import WITH_TWINS, Variant
from pipelines.errors import UserError
from pipelines.store.keys import installed_version

Array = np.ndarray[Any, Any]
Timed = Callable[[int], float]
"""Runs a number of inferences one after another; returns the seconds each took, on average."""
Outputs = Callable[[], Sequence[Array]]


class EngineError(UserError):
    """An engine does not run this model; the message says why."""


@dataclass(frozen=True)
class Loaded:
    """A model loaded in an engine, its inputs set."""

    outputs: Outputs
    timed: Timed


Load = Callable[[Variant, Mapping[str, Array], int], Loaded]


@dataclass(frozen=True)
class Engine:
    """A runtime of others."""

    name: str
    version: str | None
    """None where it is not installed."""
    formats: tuple[str, ...]
    load: Load
    """From the file, inputs by name in the graph's order, and the threads."""
    load_by_default: Load | None = None
    """The same with floats in bfloat16, for an engine that does so itself where a processor can,
    and that `load` keeps from it."""
    has_twins: bool = False
    """Whether `load` makes twins, in the engine's own operators, of ONNX files in 8 bits."""

    @property
    def is_installed(self) -> bool:
        """Whether it can be asked here."""
        return self.version is not None

    def runs_twin(self, variant: Variant) -> bool:
        """Whether it does not read a file and runs its twin instead."""
        is_read = variant.form in self.formats
        return self.has_twins and not is_read and (variant.form, variant.precision) in WITH_TWINS

    def takes(self, variant: Variant) -> bool:
        """Whether it is asked to run a file, or its twin."""
        return variant.form in self.formats or self.runs_twin(variant)

    @property
    def title(self) -> str:
        """Its name with its version."""
        return f"{self.name} {self.version}"


def _looped(once: Callable[[], object]) -> Timed:
    def timed(count: int) -> float:
        begin = time.perf_counter()
        for _ in range(count):
            once()
        return (time.perf_counter() - begin) / count

    return timed


def _onnxruntime(variant: Variant, inputs: Mapping[str, Array], threads: int) -> Loaded:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    # Without quantizers values may shrink to denormals, which would cost a float twin alone.
    options.add_session_config_entry("session.set_denormal_as_zero", "1")
    # Its threads shall not spin on while it is another's turn.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    session = ort.InferenceSession(variant.source, options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    for name, array in inputs.items():
        binding.bind_cpu_input(name, np.ascontiguousarray(array))
    for output in session.get_outputs():
        binding.bind_output(output.name)
    session.run_with_iobinding(binding)
    return Loaded(binding.copy_outputs_to_cpu, _looped(lambda: session.run_with_iobinding(binding)))


def _openvino(variant: Variant, inputs: Mapping[str, Array], threads: int) -> Loaded:
    # By itself it computes floats in bfloat16 where the processor can, between the layers of an
    # integer file, too; slowly, if oneDNN is kept to a profile's instructions without it.
    return _openvino_with(variant, inputs, threads, {"INFERENCE_PRECISION_HINT": "f32"})


def _openvino_by_default(variant: Variant, inputs: Mapping[str, Array], threads: int) -> Loaded:
    return _openvino_with(variant, inputs, threads, {})


def _openvino_with(
    variant: Variant, inputs: Mapping[str, Array], threads: int, precision: Mapping[str, str]
) -> Loaded:
    import openvino as ov

    core = ov.Core()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"model.{variant.form}"
        path.write_bytes(variant.source)
        model = core.read_model(path)
    config = {
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": "1",
        "INFERENCE_NUM_THREADS": str(threads),
        **precision,
    }
    request = core.compile_model(model, "CPU", config).create_infer_request()
    for index, array in enumerate(inputs.values()):
        request.set_input_tensor(index, ov.Tensor(np.ascontiguousarray(array)))
    request.infer()

    def outputs() -> list[Array]:
        count = len(model.outputs)
        return [np.array(request.get_output_tensor(index).data) for index in range(count)]

    return Loaded(outputs, _looped(request.infer))


def _litert(variant: Variant, inputs: Mapping[str, Array], threads: int) -> Loaded:
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_content=variant.source, num_threads=threads)
    for item, array in zip(interpreter.get_input_details(), inputs.values(), strict=True):
        if tuple(item["shape"]) != array.shape:
            interpreter.resize_tensor_input(item["index"], list(array.shape))
    interpreter.allocate_tensors()
    for item, array in zip(interpreter.get_input_details(), inputs.values(), strict=True):
        interpreter.set_tensor(item["index"], np.ascontiguousarray(array))
    interpreter.invoke()
    details = interpreter.get_output_details()
    return Loaded(
        lambda: [np.array(interpreter.get_tensor(item["index"])) for item in details],
        _looped(interpreter.invoke),
    )


def _torch(variant: Variant, inputs: Mapping[str, Array], threads: int) -> Loaded:
    import torch

    torch.set_num_threads(threads)
    tensors = [torch.from_numpy(np.array(array)) for array in inputs.values()]
    if variant.form == "pt2":
        from pipelines.reference_runtimes import pytorch

        exact = module = pytorch.module(variant.source)
    else:
        from pipelines.benchmarks import torch_twin

        exact, module = torch_twin.loaded(variant.source, tensors)

    def run(wanted: Callable[..., Sequence[Any]]) -> Sequence[Any]:
        with torch.inference_mode():
            return wanted(*tensors)

    return Loaded(
        lambda: [np.asarray(each.numpy()) for each in run(exact)], _looped(lambda: run(module))
    )


ENGINES: Mapping[str, Engine] = {
    "onnxruntime": Engine(
        "ONNX Runtime", installed_version("onnxruntime"), ("onnx",), _onnxruntime
    ),
    "openvino": Engine(
        "OpenVINO",
        installed_version("openvino"),
        ("onnx", "tflite"),
        _openvino,
        _openvino_by_default,
    ),
    "litert": Engine("LiteRT", installed_version("ai-edge-litert"), ("tflite",), _litert),
    "torch": Engine("PyTorch", installed_version("torch"), ("pt2",), _torch, has_twins=True),
}
"""By the name that `peers=` takes."""


def load(engine: Engine, variant: Variant, inputs: Mapping[str, Array], threads: int) -> Loaded:
    """Return a model loaded in an engine; EngineError if it cannot load or run it.

    It is loaded and run in a thread of its own: some engines have the processor flush denormals
    to zero and leave it so, which would change the results of whatever runs in that thread next.
    Before that it is tried in a process of its own: one that dies is one that cannot run it.
    """
    signal = probe_process.death(engine.load, variant, inputs, threads)
    if signal is not None:
        raise EngineError(f"{engine.title} cannot run it: it ends its process ({signal})")
    apart = ThreadPoolExecutor(1, thread_name_prefix=engine.name)
    try:
        loaded = apart.submit(engine.load, variant, inputs, threads).result()
    except Exception as error:
        # Every engine has exceptions of its own for what it does not support.
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise EngineError(f"{engine.title} cannot run it: {reason}") from error
    return Loaded(
        lambda: apart.submit(loaded.outputs).result(),
        lambda count: apart.submit(loaded.timed, count).result(),
    )


_ISA_LIMITS = (
    ("+amx-int8", "AVX512_CORE_AMX"),
    ("+avx512bf16", "AVX512_CORE_BF16"),
    ("+avx512vnni", "AVX512_CORE_VNNI"),
    ("+avx512bw", "AVX512_CORE"),
    ("+avxvnni", "AVX2_VNNI"),
    ("+avx2", "AVX2"),
)
"""A feature of the processor → oneDNN's name for all that goes with it."""


def limit_instructions(hardware: Hardware) -> str:
    """Keep oneDNN, and so OpenVINO, to the instructions of a profile; return what was set.

    It is read once, when the engine is first loaded. ONNX Runtime has no such switch.
    """
    limit = next((name for mark, name in _ISA_LIMITS if mark in hardware.features), "SSE41")
    os.environ["ONEDNN_MAX_CPU_ISA"] = limit
    return limit
