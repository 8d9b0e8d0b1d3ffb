"""Who takes turns: each engine with each file, and with bfloat16 where that is its default."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pipelines.benchmarks import contestants, engines
from pipelines.benchmarks.variants import Precision, Variant
from pipelines.errors import UserError

X = np.array([[1.0, 2.0]], np.float32)
PRECISIONS: tuple[Precision, ...] = ("float32", "int8", "as stored")


def exact(variant: Variant, inputs: Mapping[str, Any], threads: int) -> engines.Loaded:
    return engines.Loaded(lambda: [inputs["data"]], lambda count: 2.0)


def rounding(variant: Variant, inputs: Mapping[str, Any], threads: int) -> engines.Loaded:
    return engines.Loaded(lambda: [inputs["data"] + 0.5], lambda count: 1.0)


ENGINE = engines.Engine("Engine", "1", ("onnx",), exact, rounding)
OTHER = engines.Engine("Other", "2", ("onnx", "tflite"), exact)


def hardware(*features: str) -> Any:
    return SimpleNamespace(features=features)


def names(files: list[Variant], *features: str) -> list[str]:
    found = contestants.asked([ENGINE, OTHER], files, hardware(*features))
    return [name for name, _engine, _variant in found]


def test_engines_get_the_files_that_they_read() -> None:
    files = [Variant("float32", b"", "onnx"), Variant("as stored", b"", "tflite")]
    assert names(files) == ["Engine 1, float32", "Other 2, float32", "Other 2, as stored"]


@pytest.mark.parametrize("feature", sorted(contestants.BFLOAT16))
def test_bfloat16_is_a_side_where_it_is_the_engines_default(feature: str) -> None:
    files = [Variant(precision, b"", "onnx") for precision in PRECISIONS]
    assert names(files, "+avx2", feature) == [
        "Engine 1, float32",
        "Engine 1, bfloat16 (its default here)",
        "Engine 1, int8",
        "Engine 1, as stored",
        "Engine 1, as stored, bfloat16 (its default here)",
        *(f"Other 2, {precision}" for precision in PRECISIONS),
    ]


def test_without_bfloat16_there_is_no_such_side() -> None:
    files = [Variant(precision, b"", "onnx") for precision in PRECISIONS]
    assert not [name for name in names(files, "+avx512vnni") if "default" in name]


def test_openvino_has_that_default() -> None:
    assert engines.ENGINES["openvino"].load_by_default is not None
    assert [engine.name for engine in engines.ENGINES.values() if engine.load_by_default] == [
        "OpenVINO"
    ]


def test_twins_are_asked_for_what_is_in_8_bits() -> None:
    files = [Variant(precision, b"", "onnx") for precision in PRECISIONS]
    engine = engines.Engine("Twin", "1", ("pt2",), exact, has_twins=True)
    found = [name for name, _engine, _variant in contestants.asked([engine], files, hardware())]
    assert found == ["Twin 1, int8", "Twin 1, as stored"]


def runners() -> Any:
    package = SimpleNamespace(golden=lambda: ({"data": X[None]}, {}))
    runner = SimpleNamespace(
        package=package,
        run=lambda inputs, threads: {"out": inputs["data"]},
        timed=lambda inputs, threads, count: (None, np.array([3.0])),
    )
    return {contestants.PACKAGE: runner}


def test_both_ways_are_loaded_and_compared_with_the_package() -> None:
    files = [Variant("float32", b"", "onnx", is_same=True)]
    litert = engines.Engine("LiteRT", "2", ("tflite",), exact)
    found = contestants.contestants(runners(), files, [ENGINE, litert], hardware("+avx512bf16"), 1)
    default = "Engine 1, bfloat16 (its default here)"
    assert {name: timed(1) for name, timed in found.timed.items()} == {
        contestants.PACKAGE: 3.0,
        "Engine 1, float32": 2.0,
        default: 1.0,
    }
    assert found.differences == {"Engine 1, float32": 0.0, default: 0.5}
    assert found.refused == [{"what": "LiteRT 2", "why": "it reads tflite, and there is none"}]


def far_off(variant: Variant, inputs: Mapping[str, Any], threads: int) -> engines.Loaded:
    return engines.Loaded(lambda: [inputs["data"] + 0.07], lambda count: 1.0)


def test_a_twin_that_is_far_off_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contestants, "load", lambda engine, *given: engine.load(*given))
    files = [Variant("int8", b"", "onnx", is_same=True)]
    near, off = (
        engines.Engine("Twin", "1", ("pt2",), each, has_twins=True) for each in (exact, far_off)
    )
    assert "Twin 1, int8" in contestants.contestants(runners(), files, [near], hardware(), 1).timed
    found = contestants.contestants(runners(), files, [off], hardware(), 1)
    assert list(found.timed) == [contestants.PACKAGE] and not found.differences
    why = "its twin's outputs differ by 0.07, and all of them span 1"
    assert found.refused == [{"what": "Twin 1, int8", "why": why}]


def shorter(variant: Variant, inputs: Mapping[str, Any], threads: int) -> engines.Loaded:
    return engines.Loaded(lambda: [inputs["data"][:, :1]], lambda count: 1.0)


def test_other_outputs_are_refused() -> None:
    engine = engines.Engine("Engine", "1", ("onnx",), shorter)
    with pytest.raises(UserError, match=r"^bench: Engine 1, float32 gives outputs \[\[1, 1\]\], "):
        contestants.contestants(
            runners(), [Variant("float32", b"", "onnx")], [engine], hardware(), 1
        )
