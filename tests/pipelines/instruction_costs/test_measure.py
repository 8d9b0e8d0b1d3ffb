"""`doit measure`: that tables have their shape. No test here depends on a duration."""

from __future__ import annotations

import platform
import shutil
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from hw.core_costs import CoreCosts, core_costs
from hw.isa import ISAS
from hw.profile import Core
from pipelines.commands import measure
from pipelines.errors import UserError
from pipelines.instruction_costs import block_timer, core_table, mca_figures, row_code
from pipelines.instruction_costs.figures import is_copy
from pipelines.recipe.overrides import Variables

NEEDS_MCA = pytest.mark.skipif(shutil.which(mca_figures.PROGRAM) is None, reason="needs llvm-mca")


def run(**command: str) -> None:
    measure.run(variables=Variables(command, {}))


@NEEDS_MCA
@pytest.mark.parametrize("core", ["cortex-a72", "haswell"])
def test_a_table_from_models_has_the_rows_of_the_one_that_is_kept(
    core: Core, tmp_path: Path
) -> None:
    out = tmp_path / "core.yaml"
    run(core=core, out=str(out))
    text = out.read_text()
    made = CoreCosts.model_validate(yaml.safe_load(text))
    assert text.startswith(f"# Made by: doit measure core={core}\n")
    assert list(made.instructions) == list(core_costs(core).instructions)


@pytest.mark.parametrize("core", get_args(Core))
def test_a_table_keeps_the_figures_that_are_no_instruction_s(core: Core) -> None:
    kept = core_costs(core)
    written = yaml.safe_load(core_table.text(kept, "doit measure"))
    assert CoreCosts.model_validate(written) == kept
    figures, sources = core_table.ESTIMATES.get(core, ({}, {}))
    assert kept.optional_figures() == figures
    assert {name: kept.sources[name] for name in sources} == sources


def test_a_core_that_does_not_exist() -> None:
    with pytest.raises(UserError, match="core=icelaek: unknown core; did you mean 'icelake'"):
        run(core="icelaek")


def test_models_without_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(UserError, match="llvm-mca is not installed"):
        run(core="haswell")


def test_rows_become_the_instructions_they_are_named_after() -> None:
    codes = {row.name: row.codes for row in row_code.rows_of("icelake")}
    assert codes["vpopcntd"] == (("vpopcntd %zmm0, %zmm0",),)
    assert len(codes["popcount_bytes_ymm"][0]) == 6
    (load,) = codes["load_64"][0]
    assert load.startswith("vmovups (") and load.endswith("%zmm0")
    assert all(line.startswith("pand ") for line in codes["pand"][0])
    names = {row.name for name in ("sse2", "avx2", "avx512bw") for row in ISAS[name].instructions()}
    assert names | {"vpopcntd", "vpopcntb", "vpdpbusd"} <= codes.keys()


@pytest.mark.skipif(
    (platform.system(), platform.machine()) != ("Linux", "x86_64"), reason="times x86-64 code"
)
def test_timed_blocks_run() -> None:
    found = [row for row in row_code.rows_of("haswell") if row.profile.isa == "sse2"]
    blocks: dict[str, Any] = {
        row.name: block_timer.independent([line for line in row.codes[0] if not is_copy(line)], 2)
        for row in found
    }
    timer = block_timer.Timer(blocks, found[0].profile)
    assert all(timer.cycles(name) > 0 for name in list(blocks)[:2])
