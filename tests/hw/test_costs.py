"""Core tables are complete: every core has a cost for everything that may be asked of it."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from pydantic import ValidationError

from hw import costs
from hw.costs import CoreCosts, core_costs
from hw.isa import ISAS, isa_of
from hw.profile import CORES, Architecture, Core, Hardware
from hw.profile import ISAS as ISAS_OF
from tests.targets import AVX512VNNI, PROFILES

PAIRS = [(architecture, core) for architecture, cores in CORES.items() for core in cores]
# Cores without AVX-512, and with it but without VPOPCNTDQ.
WITHOUT = {
    "haswell": {"avx512bw", "avx512vpopcntdq"},
    "cascadelake": {"avx512vpopcntdq"},
}


@pytest.mark.parametrize(("architecture", "core"), PAIRS)
def test_a_core_has_costs_for_every_instruction_set_it_can_have(
    architecture: Architecture, core: Core
) -> None:
    found = core_costs(core)
    for name in set(ISAS_OF[architecture]) - WITHOUT.get(core, set()):
        assert found.count[name] > 0
        assert found.dot[ISAS[name].dot.name] > 0
    if "avx512bw" in found.count:
        assert found.dot[isa_of(AVX512VNNI).dot.name] > 0


def test_every_table_belongs_to_a_core_and_names_what_exists() -> None:
    rows = {isa_of(profile).dot.name for profile in PROFILES}
    tables = list((Path(costs.__file__).parent / "cores").glob("*.yaml"))
    assert {path.stem for path in tables} == {core for _, core in PAIRS}
    for path in tables:
        table = CoreCosts.model_validate(yaml.safe_load(path.read_text()))
        assert set(table.count) <= set(ISAS), path.stem
        assert set(table.dot) <= rows, path.stem
        assert all(cost > 0 for cost in (*table.count.values(), *table.dot.values()))


def test_a_table_refuses_what_it_does_not_know() -> None:
    fields = core_costs("haswell").model_dump()
    with pytest.raises(ValidationError, match="latency"):
        CoreCosts.model_validate(fields | {"latency": 3})
    with pytest.raises(ValidationError, match="sources"):
        CoreCosts.model_validate(fields | {"sources": ()})
    with pytest.raises(ValidationError, match="logic"):
        CoreCosts.model_validate(fields | {"logic": 0})


def test_a_core_without_a_table_is_an_error() -> None:
    with pytest.raises(FileNotFoundError):
        core_costs("pentium")


def test_a_profile_refuses_a_core_without_its_instructions() -> None:
    fields = AVX512VNNI.model_dump() | {"core": "haswell"}
    expected = "core haswell has no isa avx512bw; accepted: sse2, avx2"
    with pytest.raises(ValidationError, match=expected):
        Hardware.model_validate(fields)


def test_ingredients_of_a_core_are_its_figures() -> None:
    found = core_costs("cortex-a53").ingredients()
    assert found["count"] == core_costs("cortex-a53").count
    assert set(found) == {"logic", "add", "count", "dot"}
    assert found != core_costs("cortex-a72").ingredients()
