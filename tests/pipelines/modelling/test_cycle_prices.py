"""Modelled cycles of loops whose cycles are known, and of what they wait for."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from pydantic import ValidationError

from hw import core_models
from pipelines.errors import UserError
from pipelines.modelling import cycle_prices, in_order_core, out_of_order
from pipelines.modelling.code_blocks import Block, Events

A53 = core_models.model("cortex-a53")


def tool(name: str) -> str | None:
    try:
        return out_of_order.tool(name)
    except UserError:
        return None


NEEDS_LLVM = pytest.mark.skipif(tool("llvm-mca") is None, reason="needs llvm-mca of LLVM 17")


def machine_code(lines: str, triple: str = "aarch64") -> bytes:
    """Assemble lines that `;` separates."""
    text = lines.replace(";", "\n") + "\n"
    command = [str(tool("llvm-mc")), f"-triple={triple}", "-show-encoding", "-mattr=+neon,+vfp4"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
    found = re.findall(r"encoding: \[([0-9a-fx,]+)\]", done.stdout)
    return bytes(int(byte, 16) for group in found for byte in group.split(","))


def each(template: str, count: int) -> str:
    return ";".join(template.format(k, 8 + k, 16 + k) for k in range(count))


PRODUCTS = (
    "smull v{2}.8h, v30.8b, v31.8b",
    "smlal2 v{2}.8h, v30.16b, v31.16b",
    "sadalp v{1}.4s, v{2}.8h",
)
LOOPS = {
    # Of 64 bits two start in a cycle, of 128 bits one.
    "half": (each("mla v{0}.8b, v30.8b, v31.8b", 4), 2),
    "whole": (each("mla v{0}.16b, v30.16b, v31.16b", 4), 4),
    # A sum is forwarded to the next product that is added to it, of floats four cycles later.
    "chain of mla": ("mla v0.16b, v30.16b, v31.16b", 1),
    "chain of fmla": ("fmla v0.4s, v30.4s, v31.4s", 4),
    "chain of mul": ("mul v0.16b, v0.16b, v31.16b", 4),
    # 128 bits take the load pipe for two cycles and begin alone, 64 start beside an addition.
    "load of 128 bits": (each("fmla v{0}.4s, v30.4s, v31.4s", 12) + ";ldr q29, [x0], #16", 14),
    "loads of 64 bits": (each("add v{0}.16b, v{0}.16b, v31.16b;ldr d{2}, [x0, #8]", 4), 4),
    "after it": (each("ldr d{2}, [x0, #8];add v{0}.16b, v{0}.16b, v31.16b", 4), 4),
    "beside products": (each("mla v{0}.16b, v30.16b, v31.16b;ldr d{2}, [x0, #8]", 4), 8),
    "four registers": ("ld1 {v0.16b, v1.16b, v2.16b, v3.16b}, [x0], #64", 8),
    # The order inside a loop is what an in-order core makes of it.
    # A product is forwarded to the one added to it; their sum waits four cycles for both.
    "one product": (each(";".join(PRODUCTS), 1), 6),
    "products of four, one by one": (each(";".join(PRODUCTS), 4), 24),
    "products of four, interleaved": (";".join(each(line, 4) for line in PRODUCTS), 12),
    "counting bits": (
        ";".join(
            each(line, 4)
            for line in (
                "eor v{2}.16b, v30.16b, v31.16b",
                "cnt v{2}.16b, v{2}.16b",
                "add v{1}.16b, v{1}.16b, v{2}.16b",
            )
        ),
        12,
    ),
    "a loop's end": ("subs x0, x0, #1;b.ne #-4", 1),
}


@NEEDS_LLVM
@pytest.mark.parametrize("name", LOOPS)
def test_loops_on_a_cortex_a53(name: str) -> None:
    pytest.importorskip("capstone")
    from pipelines.modelling.arm_decoder import Decoder

    lines, expected = LOOPS[name]
    assert A53.in_order
    instructions = Decoder("aarch64", A53.in_order).instructions(machine_code(lines))
    assert len(instructions) == lines.count(";") + 1
    assert in_order_core.cycles(instructions) == expected


@NEEDS_LLVM
def test_32_bits_have_the_same_pipes() -> None:
    pytest.importorskip("capstone")
    code = machine_code("vmlal.s16 q0, d4, d5;vmlal.s16 q1, d4, d5;vld1.8 {d6}, [r0]!", "armv7a")
    assert cycle_prices.rounds_of([code], "cortex-a53", "armv7") == {code: 3.0}


@NEEDS_LLVM
def test_blocks_are_told_apart_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    codes = [machine_code("add x0, x0, #1"), machine_code(each("mul v{0}.8h, v30.8h, v31.8h", 6))]
    for core in ("cortex-a72", "cortex-a76", "neoverse-v2"):
        found = cycle_prices.rounds_of(codes, core, "aarch64", tmp_path)
        assert found[codes[0]] == pytest.approx(1, abs=0.1)
        assert 1.4 < found[codes[1]] < 13
    monkeypatch.setattr(cycle_prices, "_computed", lambda *_: pytest.fail("these were kept"))
    assert cycle_prices.rounds_of(codes, "neoverse-v2", "aarch64", tmp_path) == found


def test_misses_wait_and_lines_move() -> None:
    memory = A53.memory
    assert memory.cycles(100, 0, 0, 0, 0) == 100
    waits = memory.cycles(100, 10, 0, 10, 0)
    assert waits == 100 + 10 * memory.l2_latency / memory.overlap
    assert memory.cycles(100, 0, 0, 1000, 1000) == 1000 * memory.memory_line_cycles
    hides = core_models.model("cortex-a72").memory
    assert hides.cycles(100, 10, 0, 10, 0) == 100


@NEEDS_LLVM
def test_a_block_is_charged_for_what_it_meets(tmp_path: Path) -> None:
    code = machine_code("add x0, x0, #1")
    block = Block(0, 1, 1000, code, Events(loads_memory=10, moved_l2=10, moved_memory=10))
    (priced,) = cycle_prices.cycles([block], "cortex-a72", kept=tmp_path)
    memory = core_models.model("cortex-a72").memory
    waits = 10 * (memory.memory_latency - memory.hidden) / memory.overlap
    assert priced.cycles == pytest.approx(priced.computing + waits)


def test_every_core_has_a_sound_model() -> None:
    assert {"cortex-a53", "cortex-a72", "cortex-a76", "neoverse-n1"} <= set(core_models.names())
    for core in core_models.names():
        assert cycle_prices.memory(core).l1_kib == core_models.model(core).memory.l1_kib
    with pytest.raises(UserError, match="no model of the core 'cortex-a73'; did you mean"):
        cycle_prices.model("cortex-a73")
    tree = A53.model_dump(by_alias=True)
    tree["memory"]["figures"]["overlap"] = "hearsay"
    with pytest.raises(ValidationError, match="unknown sources: hearsay"):
        core_models.CoreModel.model_validate(tree)


def test_an_old_llvm_is_told_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(out_of_order, "OLDEST", 99)
    monkeypatch.setattr(shutil, "which", lambda _: None)
    out_of_order.tool.cache_clear()
    try:
        with pytest.raises(UserError, match="LLVM 99 or newer; on Debian: apt install llvm-"):
            out_of_order.tool("llvm-mca")
    finally:
        out_of_order.tool.cache_clear()
