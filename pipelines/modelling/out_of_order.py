"""Cycles of blocks on cores that llvm-mca has a model of, many blocks in one process."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from itertools import chain
from pathlib import Path

from hw.core_models import Mca
from pipelines.errors import UserError

OLDEST = 17
"""The first LLVM with a model of the Neoverse V1 of its own."""
TRIPLES = {"aarch64": "aarch64", "armv7": "armv7a", "x86_64": "x86_64"}
# A core's own features leave out what a program may hold that asks the processor first.
_FEATURES = {"aarch64": "+all", "armv7": "+neon,+vfp4,+hwdiv,+hwdiv-arm", "x86_64": ""}
_ROUNDS = 100
_BATCH = 400


def cycles(codes: Sequence[bytes], architecture: str, asked: Mca) -> list[float]:
    """Cycles of one round of each block that is repeated a hundred times.

    An instruction without a model is skipped; a block of nothing else takes a cycle for every two
    instructions. Raises UserError without LLVM 17 or newer.
    """
    found: list[float] = []
    for start in range(0, len(codes), _BATCH):
        part = codes[start : start + _BATCH]
        found += _batch(part, architecture, asked)
    return found


def version() -> str:
    """The version of the LLVM that is used; raises UserError without one."""
    done = subprocess.run([tool("llvm-mca"), "--version"], capture_output=True, text=True)
    return _matched(r"version (\S+)", done.stdout) or "unknown"


def _batch(codes: Sequence[bytes], architecture: str, asked: Mca) -> list[float]:
    texts = []
    for k, lines in enumerate(_disassembled(codes, architecture)):
        texts += [f"# LLVM-MCA-BEGIN {k}", *(lines or ["nop"]), f"# LLVM-MCA-END {k}"]
    options = [f"-mtriple={TRIPLES[architecture]}", f"-mcpu={asked.cpu}", "--json"]
    options += [f"-iterations={_ROUNDS}", "-skip-unsupported-instructions=any"]
    options += ["-resource-pressure=0", "-instruction-info=0"]
    if _FEATURES[architecture]:
        options.append(f"-mattr={_FEATURES[architecture]}")
    if asked.dispatch:
        options.append(f"-dispatch={asked.dispatch}")
    answer = json.loads(_run([tool("llvm-mca"), *options], "\n".join(texts) + "\n"))
    found = {
        int(region["Name"]): region["SummaryView"]["TotalCycles"] / _ROUNDS
        for region in answer["CodeRegions"]
        if "SummaryView" in region
    }
    return [found.get(k, len(code) / 8) for k, code in enumerate(codes)]


def _disassembled(codes: Sequence[bytes], architecture: str) -> list[list[str]]:
    """The assembly of each block, told apart by bytes that no block holds."""
    mark, shown = _MARKS[architecture]
    joined = "\n".join(
        " ".join(f"0x{byte:02x}" for byte in part) for code in codes for part in (code, mark)
    )
    options = ["-disassemble", f"-triple={TRIPLES[architecture]}"]
    if _FEATURES[architecture]:
        options.append(f"-mattr={_FEATURES[architecture]}")
    blocks: list[list[str]] = [[]]
    for line in _run([tool("llvm-mc"), *options], joined + "\n", check=False).splitlines():
        bare = re.split(r"//|@|\s#\s", line)[0].strip()
        if shown.fullmatch(re.sub(r"\s+", " ", bare)):
            while blocks[-1][-1:] == ["nop"]:
                blocks[-1].pop()
            blocks.append([])
        elif bare and not bare.startswith("."):
            blocks[-1].append(bare)
    if blocks.pop() or len(blocks) != len(codes):
        raise UserError(f"llvm-mc of LLVM {version()} lost a block; please report this as a bug")
    return blocks


_MARKS = {
    "aarch64": (bytes.fromhex("ff2e03d5"), re.compile(r"hint #(119|0x77)")),
    "armv7": (bytes.fromhex("77f020e3"), re.compile(r"hint #(119|0x77)")),
    # QEMU may cut off a block's last instruction: it takes some of the no-operations.
    "x86_64": (
        bytes.fromhex("90" * 14 + "0f1f8077777777"),
        re.compile(r"nopl (2004318071|0x77777777)\(%rax\)"),
    ),
}


def _run(command: Sequence[str], text: str, check: bool = True) -> str:
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if check and done.returncode:
        raise UserError(f"{Path(command[0]).name} failed: {done.stderr.strip()[-500:]}")
    return done.stdout


@cache
def tool(name: str) -> str:
    """The newest of LLVM's programs of a name that is new enough."""
    folders = sorted(Path("/usr/lib").glob("llvm-*/bin"), key=_release, reverse=True)
    places = (folder / name for folder in folders if _release(folder) >= OLDEST)
    for place in chain((str(p) for p in places if p.exists()), [shutil.which(name)]):
        if place and _is_new(place):
            return place
    raise UserError(
        f"modelling cycles needs {name} of LLVM {OLDEST} or newer; on Debian: apt install llvm-19"
    )


def _release(folder: Path) -> int:
    return int(_matched(r"llvm-(\d+)", str(folder)) or 0)


def _is_new(program: str) -> bool:
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    return int(_matched(r"version (\d+)", said.stdout) or 0) >= OLDEST


def _matched(pattern: str, text: str) -> str | None:
    found = re.search(pattern, text)
    return found.group(1) if found else None
