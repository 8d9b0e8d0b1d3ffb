"""Required features: every processor that a profile can name has an answer."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from hw import host
from hw.profile import Hardware
from stages.errors import StageError
from stages.packaging.c_source.features import CHECKS, needed_features
from tests.stages.packaging.support import AARCH64, ARMV7, X86_64

BOARDS = Path(__file__).parents[4] / "hw" / "boards"


def changed(hardware: Hardware, **changes: object) -> Hardware:
    return Hardware.model_validate(hardware.model_dump() | changes)


def test_what_a_cpu_brings_is_needed_too() -> None:
    assert needed_features(X86_64) == ("sse2",)
    assert needed_features(AARCH64) == ("neon",)
    assert needed_features(ARMV7) == ("crc", "hwdiv-arm", "neon", "vfp4")
    haswell = needed_features(changed(X86_64, cpu="haswell", features=("+avx512f",)))
    assert {"avx2", "fma", "popcnt", "avx512f"} <= set(haswell)
    assert list(haswell) == sorted(haswell)


def test_every_detected_feature_can_be_asked_for() -> None:
    for architecture, table in (("x86_64", host.X86_FEATURES), ("aarch64", host.ARM_FEATURES)):
        assert {feature for feature, _ in table.values()} <= CHECKS[architecture].keys()


@pytest.mark.parametrize("path", sorted(BOARDS.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_board_has_an_answer(path: Path) -> None:
    board = yaml.safe_load(path.read_text())
    if board.get("detect"):
        pytest.skip("what it is depends on the machine")
    base = {"x86_64": X86_64, "aarch64": AARCH64, "armv7": ARMV7}[board["architecture"]]
    features = tuple(board.get("features", ()))
    hardware = changed(base, cpu=board["cpu"], core=board["core"], features=features)
    assert set(needed_features(hardware)) <= CHECKS[hardware.architecture].keys()


def test_unknown_names_are_refused() -> None:
    with pytest.raises(StageError, match="cannot tell which features the processor 'znver9'"):
        needed_features(changed(X86_64, cpu="znver9"))
    with pytest.raises(StageError, match="cannot ask a processor for the feature 'warp'"):
        needed_features(changed(X86_64, features=("+warp",)))
