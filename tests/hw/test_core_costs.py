"""Core tables are complete, and the cycles of a block are the least its pipes need."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from hw import core_costs as costs_of_cores
from hw.arm_cores import ARM_CORES
from hw.core_costs import CoreCosts, UnknownInstructionError, core_costs
from hw.isa import ISAS, Operation, isa_of, tile_registers
from hw.isa.instruction_set import Architecture
from hw.profile import CORES, ISA_NAMES, Core, Hardware
from tests.targets import AMX_GFNI, AVX512VBMI, AVX512VNNI, AVXVNNI, FP16, I8MM, PROFILES

PAIRS = [(architecture, core) for architecture, cores in CORES.items() for core in cores]
# Cores without AVX-512, and with it but without VPOPCNTDQ.
WITHOUT = {
    "haswell": {"avx512bw", "avx512vpopcntdq"},
    "alderlake": {"avx512bw", "avx512vpopcntdq"},
    "cascadelake": {"avx512vpopcntdq"},
}
TABLES = sorted((Path(costs_of_cores.__file__).parent / "cores").glob("*.yaml"))


def small_core(**instructions: dict[str, float]) -> CoreCosts:
    """Three pipes and a load pipe, and instructions by their uses."""
    rows = {
        name: {"uses": uses, "latency": 1, "source": "us"} for name, uses in instructions.items()
    }
    return CoreCosts.model_validate(
        {
            "description": "small",
            "sources": {"us": "made up", "issue": "made up"},
            "pipes": ("p0", "p1", "p5", "load"),
            "issue": 4,
            "instructions": rows,
        }
    )


SMALL = small_core(
    logic={"p0+p1+p5": 1},
    wide={"p0+p5": 1},
    count={"p5": 1},
    load={"load": 1},
    macro={"p0+p1+p5": 4, "p5": 2},
)


@pytest.mark.parametrize(("architecture", "core"), PAIRS)
def test_a_core_has_costs_for_every_instruction_set_it_can_have(
    architecture: Architecture, core: Core
) -> None:
    found = core_costs(core)
    for name in set(ISA_NAMES[architecture]) - WITHOUT.get(core, set()):
        isa = ISAS[name]
        sizes = (isa.bytes, isa.bytes // 2) if isa.half_registers else (isa.bytes,)
        memory = [f"{what}_{size}" for what in ("load", "broadcast") for size in sizes]
        for row in (*memory, *(instruction.name for instruction in isa.instructions())):
            assert found.knows(row), row
            assert found.cycles({row: 1}) > 0 and found.latency(row) > 0


@pytest.mark.parametrize("core", ["cascadelake", "icelake", "sapphirerapids", "zen4", "zen5"])
def test_cores_have_the_rows_of_their_features(core: Core) -> None:
    extra = ["+avx512vnni"]
    if core != "cascadelake":
        extra += ["+avx512bitalg", "+avx512vbmi"]
    fields = AVX512VNNI.model_dump()
    hardware = Hardware.model_validate(
        fields | {"core": core, "features": (*fields["features"], *extra)}
    )
    assert all(core_costs(core).knows(row.name) for row in isa_of(hardware).instructions())


@pytest.mark.parametrize("core", ["alderlake", "sapphirerapids", "zen4", "zen5", "generic-x86-64"])
def test_cores_have_the_dot_product_of_256_bits(core: Core) -> None:
    hardware = Hardware.model_validate(AVXVNNI.model_dump() | {"core": core})
    assert core_costs(core).knows(isa_of(hardware)[Operation.DOT].name)


@pytest.mark.parametrize("core", ARM_CORES)
def test_an_arm_core_has_the_rows_of_its_features(core: Core) -> None:
    features = ("+neon", *ARM_CORES[core].features)
    hardware = Hardware.model_validate(I8MM.model_dump() | {"core": core, "features": features})
    extensions = {"+dotprod", "+i8mm"}.intersection(features)
    dots = [dot for dot in isa_of(hardware).dots if dot.pixels == 1]
    assert len(dots) == 1 + len(extensions)
    assert hardware.multiplies_float16 == ("+fullfp16" in features)


def test_every_table_belongs_to_a_core_and_names_what_exists() -> None:
    profiles = (*PROFILES, AVX512VBMI, AMX_GFNI, FP16, I8MM)
    rows = {row.name for profile in profiles for row in isa_of(profile).instructions()}
    rows |= {"vpopcntb", "vpdpbusd_ymm", "vpdpwssd_ymm", "vdpbf16ps", *tile_registers.NAMES}
    assert {path.stem for path in TABLES} == {core for _, core in PAIRS}
    for path in TABLES:
        names = CoreCosts.model_validate(yaml.safe_load(path.read_text())).instructions
        assert {name for name in names if not name.startswith(("load_", "broadcast_"))} <= rows


def test_every_table_says_how_it_was_made() -> None:
    for path in TABLES:
        assert path.read_text().startswith("# Made by: doit measure"), path.stem
        table = core_costs(path.stem)
        used = {key for row in table.instructions.values() for key in row.source.split("+")}
        figures = {"issue", *(table.optional_figures().keys() - {"overlap_window"})}
        assert used | figures == set(table.sources), path.stem


@pytest.mark.parametrize(
    ("counts", "cycles"),
    [
        ({}, 0),
        ({"logic": 1}, 1 / 3),
        ({"count": 2}, 2),
        # p5 takes the counts, p0 the wide one beside it.
        ({"count": 1, "wide": 1}, 1),
        ({"count": 2, "wide": 2}, 2),
        ({"count": 1, "wide": 3}, 2),
        ({"logic": 1, "count": 1, "wide": 1}, 1),
        ({"logic": 4, "count": 1, "wide": 1}, 2),
        # Loads have a pipe of their own.
        ({"logic": 3, "load": 1}, 1),
        ({"logic": 3, "load": 2}, 2),
        ({"macro": 1}, 2),
        ({"macro": 1, "count": 1}, 3),
        ({"macro": 0.5, "logic": 1.5}, 1.5),
    ],
)
def test_cycles_of_blocks_by_hand(counts: dict[str, float], cycles: float) -> None:
    assert SMALL.cycles(counts) == pytest.approx(cycles)


BLOCKS = st.dictionaries(st.sampled_from(sorted(SMALL.instructions)), st.floats(0, 100))


@given(BLOCKS, BLOCKS)
def test_cycles_are_monotone_and_subadditive(
    one: dict[str, float], other: dict[str, float]
) -> None:
    both = {name: one.get(name, 0) + other.get(name, 0) for name in one.keys() | other.keys()}
    together = SMALL.cycles(both)
    assert together >= max(SMALL.cycles(one), SMALL.cycles(other)) - 1e-9
    assert together <= SMALL.cycles(one) + SMALL.cycles(other) + 1e-9


@given(BLOCKS, st.floats(0, 10))
def test_cycles_grow_with_the_block(block: dict[str, float], factor: float) -> None:
    scaled = {name: factor * count for name, count in block.items()}
    assert SMALL.cycles(scaled) == pytest.approx(factor * SMALL.cycles(block), abs=1e-9)


def test_an_unknown_instruction_is_an_error_that_names_it() -> None:
    assert not SMALL.knows("vpopcntd")
    for ask in (SMALL.latency, lambda name: SMALL.cycles({"logic": 1, name: 1})):
        with pytest.raises(UnknownInstructionError, match="'vpopcntd' for the core: small"):
            ask("vpopcntd")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"logic": 0.5}, "logic"),
        ({"sources": {}}, "sources"),
        ({"pipes": ("p0", "load")}, "uses p0\\+p1\\+p5, but the pipes are"),
        ({"sources": {"them": "said so"}}, "unknown source: us"),
        ({"sources": {"us": "made up"}}, "nothing says where the figure 'issue' comes from"),
    ],
)
def test_a_table_refuses_what_contradicts_itself(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        CoreCosts.model_validate(SMALL.model_dump(by_alias=True) | change)


def test_a_micro_operation_less_than_none_is_refused() -> None:
    with pytest.raises(ValidationError, match="uses p0 0"):
        small_core(none={"p0": 0})


def test_a_core_without_a_table_is_an_error() -> None:
    with pytest.raises(FileNotFoundError):
        core_costs("pentium")


def test_a_profile_refuses_a_core_without_its_instructions() -> None:
    fields = AVX512VNNI.model_dump() | {"core": "haswell"}
    expected = "core haswell has no isa avx512bw; accepted: sse2, avx2"
    with pytest.raises(ValidationError, match=expected):
        Hardware.model_validate(fields)


def test_a_profile_refuses_a_feature_that_its_core_lacks() -> None:
    fields = AVX512VNNI.model_dump()
    fields |= {"core": "cascadelake", "features": (*fields["features"], "+avx512bitalg")}
    with pytest.raises(ValidationError, match="core cascadelake has no vpopcntb"):
        Hardware.model_validate(fields)


def test_ingredients_of_a_core_are_its_figures() -> None:
    found = core_costs("cortex-a53").ingredients()
    assert set(found) == {
        "pipes",
        "issue",
        "line",
        "memory",
        "exposed_epilogue",
        "overlap_window",
        "instructions",
    }
    instructions = found["instructions"]
    assert isinstance(instructions, dict)
    assert set(instructions["cnt"]) == {"uses", "latency"}
    assert found != core_costs("cortex-a72").ingredients()


def test_a_loop_takes_what_is_scarcest() -> None:
    """Pipes, issue or a chain of results, and a tenth of the issue time for friction."""
    assert SMALL.block({"count": 3}) == pytest.approx(3 + 0.1 * 3 / 4)
    assert SMALL.block({"logic": 3}, scalar=9) == pytest.approx(3 * 1.1)
    assert SMALL.block({"logic": 1}, chain=7) == pytest.approx(7 + 0.1 / 4)
