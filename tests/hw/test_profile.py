"""A hardware profile checks itself when it is made."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from hw.profile import CORES, ISA_NAMES, NEEDED, VECTOR_BITS, Hardware

A53: dict[str, Any] = {
    "name": "board",
    "architecture": "aarch64",
    "triple": "aarch64-linux-gnu",
    "cpu": "cortex-a53",
    "zig_target": "aarch64-linux-gnu.2.28",
    "isa": "neon_aarch64",
    "core": "cortex-a53",
    "threads": 4,
    "l1d_kib": 32,
    "l2_kib": 512,
}


def test_words_for_people_are_no_ingredient() -> None:
    plain = Hardware(**A53)
    described = Hardware(**A53, description="a board", sources=("a book",))
    assert plain.ingredients() == described.ingredients()
    assert plain.ingredients() != Hardware(**{**A53, "threads": 2}).ingredients()


def test_features_are_a_set() -> None:
    one = Hardware(**A53, features=("+neon", "+crc"))
    other = Hardware(**A53, features=("+crc", "+neon", "+neon"))
    assert one.ingredients() == other.ingredients()


def test_every_isa_belongs_to_one_architecture_and_has_a_width() -> None:
    every = [isa for isas in ISA_NAMES.values() for isa in isas]
    assert sorted(every) == sorted(set(every)) == sorted(VECTOR_BITS) == sorted(NEEDED)
    assert set(CORES) == set(ISA_NAMES)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"isa": "avx2"}, "isa avx2 does not exist on aarch64"),
        ({"core": "haswell"}, "core haswell is not an aarch64 core"),
        ({"triple": "x86_64-linux-gnu"}, "does not begin with aarch64-"),
        ({"zig_target": "arm-linux-gnueabihf"}, "does not begin with aarch64-"),
        ({"zig_target": "aarch64-windows-gnu"}, "is for windows-gnu, and packages run on Linux"),
        ({"zig_target": "aarch64-macos.13-none"}, "is for macos-13-none, and packages run on L"),
        ({"zig_target": "aarch64-linux-android"}, "is for linux-android, and packages run on L"),
        ({"zig_target": "aarch64"}, "names no system, and packages run on Linux alone as yet; "),
        ({"triple": "aarch64-apple-darwin"}, "is for apple-darwin, and packages run on Linux"),
        ({"float_abi": "hard"}, "float_abi is hard on armv7"),
        ({"features": ("neon",)}, "write '\\+name'"),
        ({"threads": 0}, "greater than or equal to 1"),
        ({"threads": True}, "valid integer"),
        ({"name": "My Board"}, "should match pattern"),
        ({"cores": 4}, "Extra inputs"),
        (
            {
                "architecture": "x86_64",
                "triple": "x86_64-linux-gnu",
                "zig_target": "x86_64-linux-gnu",
                "isa": "avx512vpopcntdq",
                "core": "icelake",
                "features": ("+avx2", "+avx512f"),
            },
            "needs the features \\+fma, \\+avx512bw, \\+avx512vpopcntdq",
        ),
    ],
)
def test_refuses_what_contradicts_itself(change: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        Hardware(**{**A53, **change})


@pytest.mark.parametrize(
    ("features", "has"), [((), False), (("+avx512vnni",), True), (("+avxvnni",), True)]
)
def test_vnni(features: tuple[str, ...], has: bool) -> None:
    made = Hardware(
        name="x",
        architecture="x86_64",
        triple="x86_64-linux-gnu",
        cpu="x86-64",
        features=features,
        zig_target="x86_64-linux-gnu.2.28",
        isa="sse2",
        core="generic-x86-64",
        threads=1,
        l1d_kib=32,
        l2_kib=256,
    )
    assert made.vnni is has
    assert made.vector_bits == 128
