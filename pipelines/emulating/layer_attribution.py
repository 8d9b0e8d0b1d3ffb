"""Whose instructions are whose: from the functions of a program to the layers of a network."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pipelines.emulating.block_costs import Cost
from pipelines.emulating.layer_kinds import RUNTIME, LayerOfKind

_MAGIC, _HEAD = b"!<arch>\n", 60


def by_layer(
    functions: Mapping[str, Cost],
    calls: Sequence[Mapping[str, Any]],
    layers: Sequence[LayerOfKind],
    users: Mapping[str, set[str]],
) -> dict[str, Cost]:
    """Return what each layer costs, in the package's order, and the rest as the runtime's.

    `calls` are the manifest's, `users` says which kernels call a helper. What layers share is split
    by their multiply-accumulates.
    """
    macs = {layer.name: layer.macs for layer in layers}
    found = {call["layer"]: Cost() for call in calls} | {RUNTIME: Cost()}
    for function, cost in functions.items():
        callers = users.get(function, set())
        owners = [
            call["layer"]
            for call in calls
            if call["kernel"] in callers or function.endswith(call["kernel"])
        ] or [RUNTIME]
        shared = sum(macs.get(name, 0) for name in owners)
        for name in owners:
            part = macs.get(name, 0) / shared if shared else 1 / len(owners)
            found[name] += cost * part
    return found


def users_of(library: Path, kernels: Sequence[str]) -> dict[str, set[str]]:
    """Return the kernels whose objects in a static library refer to a function, by its name."""
    from elftools.elf.elffile import ELFFile

    found: dict[str, set[str]] = {}
    for data in members(library.read_bytes()):
        table = ELFFile(io.BytesIO(data)).get_section_by_name(".symtab")
        symbols = list(table.iter_symbols()) if table else []
        defined = [symbol.name for symbol in symbols if symbol["st_shndx"] != "SHN_UNDEF"]
        here = {kernel for kernel in kernels if any(name.endswith(kernel) for name in defined)}
        for symbol in symbols:
            if symbol["st_shndx"] == "SHN_UNDEF" and symbol.name and here:
                found.setdefault(symbol.name, set()).update(here)
    return found


def members(archive: bytes) -> Iterator[bytes]:
    """Yield the objects in an archive of ar(5), its tables aside."""
    if not archive.startswith(_MAGIC):
        raise ValueError("no archive")
    at = len(_MAGIC)
    while at + _HEAD <= len(archive):
        size = int(archive[at + 48 : at + 58])
        data = archive[at + _HEAD : at + _HEAD + size]
        if data.startswith(b"\x7fELF"):
            yield data
        at += _HEAD + size + size % 2
