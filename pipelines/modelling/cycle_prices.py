"""Cycles of a counted run on a core: of its machine code, and of what it waits for."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from hw import core_models
from pipelines.errors import UserError, did_you_mean
from pipelines.modelling import out_of_order
from pipelines.modelling.code_blocks import Block
from pipelines.modelling.memory import Memory
from pipelines.store import atomic
from pipelines.store.keys import canonical, digest

_CODE = ("arm_decoder.py", "in_order_core.py", "out_of_order.py")


@dataclass(frozen=True)
class Priced:
    """The modelled cycles of a block, over all of its executions."""

    block: Block
    computing: float
    """As if every load hit the L1 cache."""
    cycles: float
    """With what the block waits for and moves."""


def model(core: str) -> core_models.CoreModel:
    """The model of a core; UserError lists the cores that have one."""
    names = core_models.names()
    if core not in names:
        raise UserError(
            f"no model of the core '{core}'{did_you_mean(core, names, otherwise='known')}"
        )
    return core_models.model(core)


def memory(core: str) -> Memory:
    """The caches of a core, to be simulated while a run is counted."""
    found = model(core).memory
    return Memory(
        *(found.l1_kib, found.l1_ways, found.l2_kib, found.l2_ways),
        random=found.random,
        streams=found.streams,
        train=found.train,
        distance=found.distance,
        reach=found.reach,
    )


def cycles(
    blocks: Iterable[Block], core: str, architecture: str = "aarch64", kept: Path | None = None
) -> list[Priced]:
    """The modelled cycles of each block; the cycles of its code are kept by that code.

    `kept` is the folder in which they are kept, the user's cache if None. Raises UserError where
    what the model needs is not installed.
    """
    blocks = list(blocks)
    found = model(core)
    rounds = rounds_of([block.code for block in blocks], core, architecture, kept)
    priced = []
    for block in blocks:
        computing = rounds[block.code] * block.count
        met = block.events
        total = found.memory.cycles(
            computing, met.loads_l2, met.loads_memory, met.moved_l2, met.moved_memory
        )
        priced.append(Priced(block, computing, total))
    return priced


def rounds_of(
    codes: Sequence[bytes], core: str, architecture: str, kept: Path | None = None
) -> dict[bytes, float]:
    """Cycles of one round of each block of code, every load in the L1 cache."""
    file = (kept or _folder()) / f"{core}-{_key(core, architecture)}.json"
    known = _known(file)
    missing = [code for code in dict.fromkeys(codes) if code.hex() not in known]
    if missing:
        priced = _computed(missing, core, architecture)
        known |= {code.hex(): value for code, value in zip(missing, priced, strict=True)}
        atomic.replace(file, json.dumps(known).encode())
    return {code: known[code.hex()] for code in codes}


def _computed(codes: Sequence[bytes], core: str, architecture: str) -> list[float]:
    found = model(core)
    if found.mca:
        return out_of_order.cycles(codes, architecture, found.mca)
    from pipelines.modelling import in_order_core
    from pipelines.modelling.arm_decoder import Decoder

    assert found.in_order
    decoder = Decoder(architecture, found.in_order)
    return [in_order_core.cycles(decoder.instructions(code)) for code in codes]


def _key(core: str, architecture: str) -> str:
    """What the cycles of code depend on beside it: the model's figures and the code here."""
    found = model(core)
    here = files("pipelines.modelling")
    texts = [digest(here.joinpath(name).read_bytes()) for name in _CODE]
    tool = out_of_order.version() if found.mca else ""
    figures = found.model_dump(mode="json", exclude={"memory", "sources", "description"})
    return digest(canonical([figures, architecture, tool, texts]))[:16]


def _known(file: Path) -> dict[str, float]:
    try:
        found = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _folder() -> Path:
    from stages.packaging.compiling.linker import default_cache

    return default_cache().parent / "modelling"
