"""The engines of `doit bench`: which there are, those that die, and Larq in a Python of its own."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hw import host
from pipelines.benchmarks import engines, larq_engine
from pipelines.benchmarks.variants import Variant
from pipelines.commands import bench
from pipelines.errors import UserError
from pipelines.recipe.overrides import Variables


def check(resolved: Any = None, **variables: str) -> None:
    given: Any = resolved or SimpleNamespace(name="toy", hardware=host.detect())
    bench.check(resolved=given, variables=Variables(variables, {}))


def test_engines_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError) as error:
        check(peers="onxruntime")
    assert error.value.message == ("peers=onxruntime: no such engine; did you mean 'onnxruntime'?")
    with pytest.raises(UserError, match=r"^own=int4: no such precision; did you mean 'int8'"):
        bench._wanted_of_own("int4", [])
    monkeypatch.setattr(engines.Engine, "is_installed", False)
    with pytest.raises(UserError) as error:
        check(peers="openvino")
    assert error.value.message == (
        "peers=openvino: OpenVINO is not installed; run: pip install -e '.[peers]'"
    )
    for stated in (None, "all"):
        said = bench._without_engines(stated, bench._wanted(stated))
        assert said == (
            "no other engine is installed, so none is timed; run: pip install -e '.[peers]'"
        )
    assert bench._without_engines("none", bench._wanted("none")) == ""
    assert bench._without_engines(None, [engines.Engine("Larq", "1", ("tflite",), dies)]) == ""


def test_what_an_engine_cannot_load_is_one_line_and_leaves_no_trace() -> None:
    engine = engines.ENGINES["onnxruntime"]
    if not engine.is_installed:
        pytest.skip("onnxruntime is not installed")
    with pytest.raises(engines.EngineError) as error:
        engines.load(engine, Variant("as stored", b"no model", "onnx"), {}, 1)
    assert error.value.message.startswith(f"{engine.title} cannot run it: ")
    assert "\n" not in error.value.message
    # ONNX Runtime was told to flush denormals: where it runs, not here.
    assert np.finfo(np.float32).smallest_subnormal * np.float32(2) > 0


def dies(variant: Variant, inputs: Mapping[str, Any], threads: int) -> engines.Loaded:
    """An engine that ends its process by the signal that its model names."""
    assert list(inputs) == ["data/0"] and inputs["data/0"].shape == (2, 3) and threads == 2
    if variant.source:
        os.kill(os.getpid(), signal.Signals[variant.source.decode()])
    return engines.Loaded(lambda: [inputs["data/0"]], lambda count: 1.0)


def test_an_engine_that_dies_of_a_model_is_one_that_cannot_run_it() -> None:
    engine = engines.Engine("Frail", "1", ("onnx",), dies)
    inputs = {"data/0": np.zeros((2, 3), np.float32)}
    with pytest.raises(engines.EngineError) as error:
        engines.load(engine, Variant("as stored", b"SIGSEGV", "onnx"), inputs, 2)
    assert error.value.message == "Frail 1 cannot run it: it ends its process (SIGSEGV)"
    loaded = engines.load(engine, Variant("as stored", b"", "onnx"), inputs, 2)
    assert loaded.timed(1) == 1.0


LARQ = """
import numpy as np
class LiteInterpreter:
    def __init__(self, source, threads, is_reference, is_indirect, has_xnnpack):
        assert (threads, is_reference) == (3, False) and is_indirect == has_xnnpack
        self.factor = 3 if is_indirect else 2
        if source != b"a model":
            raise RuntimeError("no such operator")
    def predict(self, inputs):
        return [self.factor * array for array in inputs]
"""


def larq_python(folder: Path) -> str:
    """A Python with a package that stands in for Larq's; it is started as the real one."""
    inner = folder / "larq_compute_engine" / "tflite" / "python"
    inner.mkdir(parents=True)
    (folder / "larq_compute_engine" / "__init__.py").write_text("raise ImportError('tensorflow')")
    (inner / "interpreter_wrapper_lite.py").write_text(LARQ)
    about = folder / "larq_compute_engine-0.0.1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Name: larq-compute-engine\nVersion: 0.0.1\n")
    python = folder / "python"
    # Its first argument isolates it, and would hide the folder.
    python.write_text(f'#!/bin/sh\nshift\nPYTHONPATH={folder} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    return str(python)


def test_larq_runs_in_a_python_of_its_own(tmp_path: Path) -> None:
    engine, fastest = larq_engine.engines(larq_python(tmp_path))
    assert engine.title == "Larq Compute Engine 0.0.1"
    assert fastest.title == "Larq Compute Engine, indirect products and XNNPACK 0.0.1"
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    loaded = engines.load(engine, Variant("bipolar", b"a model", "larq"), {"a": x, "b": x + 1}, 3)
    first, second = loaded.outputs()
    assert np.array_equal(first, 2 * x) and np.array_equal(second, 2 * x + 2)
    assert 0 < loaded.timed(5) < 1
    loaded = engines.load(fastest, Variant("bipolar", b"a model", "larq"), {"a": x}, 3)
    assert np.array_equal(loaded.outputs()[0], 3 * x)
    with pytest.raises(engines.EngineError, match=r"0\.0\.1 cannot run it: RuntimeError: no such"):
        engines.load(engine, Variant("bipolar", b"another", "larq"), {"a": x}, 3)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"peers": "larq"},
            "peers=larq: say in which Python it is: peers.larq=PYTHON, for",
        ),
        ({"peers.larq": "/no/python"}, "peers.larq=/no/python: no such program; a Python is accep"),
        ({"peers.larq": "true"}, "peers.larq=true: it has no larq-compute-engine; for example: py"),
    ],
)
def test_larq_without_its_python(given: dict[str, str], message: str) -> None:
    with pytest.raises(UserError) as error:
        check(**given)
    assert error.value.message.startswith(message)


@pytest.mark.parametrize(
    ("features", "limit"),
    [
        (("+avx2", "+avx512bw", "+avx512vnni", "+amx-int8"), "AVX512_CORE_AMX"),
        (("+avx2", "+avx512bf16", "+avx512bw", "+avx512vnni"), "AVX512_CORE_BF16"),
        (("+avx2", "+avx512bw", "+avx512vnni"), "AVX512_CORE_VNNI"),
        (("+avx2", "+avx512bw"), "AVX512_CORE"),
        (("+avx2",), "AVX2"),
        ((), "SSE41"),
    ],
)
def test_engines_are_kept_to_the_profiles_instructions(
    features: tuple[str, ...], limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "")
    hardware: Any = SimpleNamespace(features=features)
    assert engines.limit_instructions(hardware) == limit == os.environ["ONEDNN_MAX_CPU_ISA"]
