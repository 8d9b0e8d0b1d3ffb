"""Host detection on the /proc/cpuinfo of real machines, and on what hypervisors leave of it."""

from __future__ import annotations

import platform
import random
from pathlib import Path

import pytest

from hw import host
from hw.host import _cache_sizes, detect, from_cpuinfo, from_flags, x86_processor
from hw.isa.tile_registers import FEATURES

_X86_64 = (
    "fpu vme de pse tsc msr pae mce cx8 apic sep mtrr pge mca cmov pat pse36 clflush mmx fxsr sse "
    "sse2 ss ht syscall nx pdpe1gb rdtscp lm constant_tsc nopl cpuid pni pclmulqdq ssse3 cx16 "
    "sse4_1 sse4_2 popcnt aes lahf_lm "
)
_HASWELL = _X86_64 + "movbe xsave avx f16c rdrand abm fma bmi1 avx2 smep bmi2 erms invpcid "
_CASCADE_LAKE = _HASWELL + (
    "avx512f avx512dq rdseed adx smap clflushopt clwb avx512cd avx512bw avx512vl avx512_vnni "
)
_ICE_LAKE = _CASCADE_LAKE + (
    "avx512ifma sha_ni avx512vbmi avx512_vbmi2 gfni vaes vpclmulqdq avx512_bitalg avx512_vpopcntdq "
)
_ZEN5 = _ICE_LAKE + "sse4a misalignsse clzero avx_vnni avx512_bf16 avx512_vp2intersect "
_SAPPHIRE_RAPIDS = _ICE_LAKE + "avx_vnni avx512_bf16 avx512_fp16 amx_bf16 amx_tile amx_int8 "


def intel(model: int, flags: str, stepping: int = 1) -> str:
    return (
        "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\n"
        f"model\t\t: {model}\nmodel name\t: Intel(R) Xeon(R)\nstepping\t: {stepping}\n"
        f"flags\t\t: {flags}\nbugs\t\t: spectre_v1\n\n"
        "processor\t: 1\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 1\nflags\t\t: fpu\n"
    )


def amd(family: int, model: int, flags: str) -> str:
    return (
        f"processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: {family}\nmodel\t\t: {model}\n"
        f"flags\t\t: {flags}\n"
    )


def arm(part: str, features: str) -> str:
    return (
        "processor\t: 0\nBogoMIPS\t: 38.40\n"
        f"Features\t: {features}\n"
        "CPU implementer\t: 0x41\nCPU architecture: 8\nCPU variant\t: 0x0\n"
        f"CPU part\t: {part}\nCPU revision\t: 4\n"
    )


@pytest.mark.parametrize(
    ("cpuinfo", "machine", "isa", "core", "vnni"),
    [
        (intel(63, _HASWELL), "x86_64", "avx2", "haswell", False),
        (intel(85, _CASCADE_LAKE, 7), "x86_64", "avx512bw", "cascadelake", True),
        (intel(106, _ICE_LAKE), "x86_64", "avx512vpopcntdq", "icelake", True),
        (intel(143, _SAPPHIRE_RAPIDS), "x86_64", "avx512vpopcntdq", "sapphirerapids", True),
        (intel(207, _SAPPHIRE_RAPIDS), "x86_64", "avx512vpopcntdq", "sapphirerapids", True),
        # A hypervisor that shows the model of a Rocket Lake, which has no tiles.
        (intel(167, _SAPPHIRE_RAPIDS), "x86_64", "avx512vpopcntdq", "sapphirerapids", True),
        # Alder Lake and Raptor Lake: no AVX-512, but AVX-VNNI.
        (intel(151, _HASWELL + "avx_vnni gfni"), "x86_64", "avx2", "alderlake", True),
        (intel(183, _HASWELL + "avx_vnni gfni"), "x86_64", "avx2", "alderlake", True),
        # Lunar Lake, whose costs are unknown.
        (intel(189, _HASWELL + "avx_vnni gfni"), "x86_64", "avx2", "generic-x86-64", True),
        # A hypervisor that hides AVX-512.
        (intel(143, _HASWELL + "avx_vnni"), "x86_64", "avx2", "sapphirerapids", True),
        (intel(26, _X86_64), "x86_64", "sse2", "generic-x86-64", False),
        (amd(25, 33, _HASWELL), "x86_64", "avx2", "generic-x86-64", False),
        (amd(25, 17, _ICE_LAKE), "x86_64", "avx512vpopcntdq", "zen4", True),
        (amd(25, 97, _ICE_LAKE), "x86_64", "avx512vpopcntdq", "zen4", True),
        (amd(26, 2, _ZEN5), "x86_64", "avx512vpopcntdq", "zen5", True),
        (amd(26, 0x44, _ZEN5), "x86_64", "avx512vpopcntdq", "zen5", True),
        # Zen 6, whose costs are unknown.
        (amd(26, 0x50, _ZEN5), "x86_64", "avx512vpopcntdq", "generic-x86-64", True),
        (arm("0xd03", "fp asimd evtstrm crc32 cpuid"), "aarch64", "neon_aarch64", "cortex-a53", 0),
        (arm("0xd08", "fp asimd evtstrm crc32"), "aarch64", "neon_aarch64", "cortex-a72", False),
        (
            arm("0xd0c", "fp asimd aes asimdhp asimdrdm asimddp"),
            "aarch64",
            "neon_aarch64",
            "neoverse-n1",
            False,
        ),
    ],
)
def test_real_machines(cpuinfo: str, machine: str, isa: str, core: str, vnni: bool) -> None:
    found = from_cpuinfo(cpuinfo, machine=machine)
    assert (found.isa, found.core, found.vnni) == (isa, core, bool(vnni))
    assert found.name == "host"


def test_names_exactly_the_features_of_a_cascade_lake() -> None:
    found = from_cpuinfo(intel(85, _CASCADE_LAKE), machine="x86_64")
    assert found.features == (
        "+avx",
        "+avx2",
        "+avx512bw",
        "+avx512cd",
        "+avx512dq",
        "+avx512f",
        "+avx512vl",
        "+avx512vnni",
        "+bmi",
        "+bmi2",
        "+f16c",
        "+fma",
        "+lzcnt",
        "+popcnt",
        "+sse3",
        "+sse4.1",
        "+sse4.2",
        "+ssse3",
    )


def test_names_the_dot_product_of_a_neoverse() -> None:
    found = from_cpuinfo(arm("0xd40", "fp asimd asimddp i8mm"), machine="aarch64")
    assert found.core == "neoverse-v1"
    assert found.features == ("+dotprod", "+i8mm", "+neon")


def test_core_and_features_without_a_table() -> None:
    core, features = x86_processor(amd(26, 2, _ZEN5))
    assert core == "zen5"
    assert features == from_cpuinfo(amd(26, 2, _ZEN5), machine="x86_64").features


def test_flags_that_no_kernel_uses_change_nothing() -> None:
    plain = from_flags(machine="x86_64", flags=_HASWELL.split())
    more = from_flags(machine="x86_64", flags=[*_HASWELL.split(), "pku", "sha_ni", "amx_tile"])
    assert plain == more


@pytest.mark.parametrize("hidden", ["avx2", "fma", "avx512f", "sse4_1", "avx512bw"])
def test_nothing_is_claimed_above_what_a_hypervisor_hides(hidden: str) -> None:
    flags = set(_ICE_LAKE.split()) - {hidden}
    found = from_flags(machine="x86_64", flags=flags, vendor="GenuineIntel", family=6, model=106)
    assert "+avx512vpopcntdq" not in found.features or hidden == "avx512bw"
    assert found.isa in ("sse2", "avx2")


def test_tiles_are_named_with_the_dot_products_that_replace_them() -> None:
    tiles = {"+amx-bf16", "+amx-int8", "+amx-tile"}
    found = from_cpuinfo(intel(143, _SAPPHIRE_RAPIDS), machine="x86_64")
    assert tiles <= set(found.features) and found.core == "sapphirerapids"
    assert found == from_cpuinfo(intel(173, _SAPPHIRE_RAPIDS), machine="x86_64")
    hidden = _SAPPHIRE_RAPIDS.replace("avx512_vnni ", "")
    assert tiles.isdisjoint(from_cpuinfo(intel(143, hidden), machine="x86_64").features)


def test_tiles_that_the_system_refuses_are_not_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(platform, "system", lambda: "Linux")
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: intel(143, _SAPPHIRE_RAPIDS))
    found = {}
    for granted in (True, False):
        monkeypatch.setattr(host, "may_use_tiles", lambda granted=granted: granted)
        found[granted] = set(detect().features)
    assert found[True] - found[False] == set(FEATURES)


def test_the_order_of_flags_does_not_matter() -> None:
    flags = _ICE_LAKE.split()
    random.Random(0).shuffle(flags)
    assert from_flags(machine="x86_64", flags=flags) == from_flags(
        machine="x86_64", flags=_ICE_LAKE.split()
    )


@pytest.mark.parametrize("text", ["", "nonsense", "flags\t:\nmodel\t: x\n", "a: b\n: c\n"])
def test_unknown_words_fall_back_to_the_baseline(text: str) -> None:
    found = from_cpuinfo(text, machine="x86_64")
    assert (found.isa, found.features, found.core) == ("sse2", (), "generic-x86-64")


@pytest.mark.parametrize("machine", ["riscv64", "armv7l", ""])
def test_other_machines_are_told_what_to_do(machine: str) -> None:
    with pytest.raises(ValueError, match="name the board to build for"):
        from_flags(machine=machine, flags=())


def test_caches_are_read_where_the_system_lists_them(tmp_path: Path) -> None:
    for index, (level, kind, size) in enumerate(
        [("1", "Data", "48K"), ("1", "Instruction", "32K"), ("2", "Unified", "2048K")]
    ):
        folder = tmp_path / f"index{index}"
        folder.mkdir()
        (folder / "level").write_text(level + "\n")
        (folder / "type").write_text(kind + "\n")
        (folder / "size").write_text(size + "\n")
    (tmp_path / "index3").mkdir()
    assert _cache_sizes(tmp_path) == (48, 2048)
    assert _cache_sizes(tmp_path / "absent") == (None, None)


@pytest.mark.skipif(
    platform.system() != "Linux" or platform.machine() not in ("x86_64", "aarch64"),
    reason="detection works on Linux on x86_64 and aarch64",
)
def test_this_machine() -> None:
    found = detect()
    assert found.threads >= 1
    assert found == detect()
