"""What other engines executed is kept: kernels of ours change daily, and theirs do not.

Kept are blocks and what they met in the caches, by all that they depend on; what they cost is
computed anew. The folder can be deleted at any time.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Sequence
from dataclasses import astuple, fields
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.modelling.code_blocks import Block, Events, Interval
from pipelines.store import atomic, keys

Array = np.ndarray[Any, Any]

_FIGURES = 4 + len(fields(Events))


def folder() -> Path:
    """Return where it is kept: in the user's cache."""
    from stages.packaging.compiling.linker import default_cache

    return default_cache().parent / "emulating"


def key_of(ingredients: Sequence[object], models: Sequence[tuple[bytes, Sequence[Array]]]) -> str:
    """Return the name of a run of models on inputs; `ingredients` are plain data."""
    given = [
        [keys.digest(model), *([str(x.dtype), list(x.shape), keys.digest(x.tobytes())] for x in xs)]
        for model, xs in models
    ]
    return keys.digest(keys.canonical([*ingredients, given]))[:24]


def recall(key: str) -> list[tuple[list[Array], Interval]] | None:
    """Return outputs and blocks of each model of a run, or None where they are not kept whole."""
    try:
        with np.load(folder() / f"{key}.npz") as stored:
            count = int(stored["models"])
            return [_read(stored, index) for index in range(count)]
    except (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile):
        return None


def keep(key: str, ran: Sequence[tuple[Sequence[Array], Interval]]) -> None:
    """Keep what `recall` is to return."""
    arrays: dict[str, Array] = {"models": np.array(len(ran))}
    for index, (outputs, interval) in enumerate(ran):
        arrays[f"{index}.outputs"] = np.array(len(outputs))
        arrays |= {f"{index}.output.{k}": output for k, output in enumerate(outputs)}
        figures = [
            (b.address, b.instructions, b.count, len(b.code), *astuple(b.events)) for b in interval
        ]
        arrays[f"{index}.figures"] = np.array(figures, np.uint64).reshape(len(interval), _FIGURES)
        arrays[f"{index}.code"] = np.frombuffer(b"".join(b.code for b in interval), np.uint8)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]
    atomic.replace(folder() / f"{key}.npz", buffer.getvalue())


def _read(stored: Any, index: int) -> tuple[list[Array], Interval]:
    outputs = [stored[f"{index}.output.{k}"] for k in range(int(stored[f"{index}.outputs"]))]
    code, at, blocks = stored[f"{index}.code"].tobytes(), 0, []
    for address, instructions, count, size, *met in stored[f"{index}.figures"].tolist():
        events = Events(*met)
        blocks.append(Block(address, instructions, count, code[at : at + size], events))
        at += size
    return outputs, tuple(blocks)
