"""What is said of one package: the first of three proofs that holds, or why none does."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any

from tests.comparing.execution import Measured
from tests.comparing.objects import Library, Unit, read

MANIFEST = "manifest.json"
_TEXTS = (".h", ".py", ".c", ".cpp", ".pc", ".cmake")
ALLOWED = 0.01
"""How much more instructions or time a package may take, as a part of what it took."""
_TENSORS = "manifest: inputs or outputs differ"
_ATTEMPTS = 3
"""How often a time has to depart: on a busy machine one may by chance."""
_SHOWN = 3
"""Changed functions that are named."""
Measure = Callable[[Path, Path], Measured]


class Verdict(Enum):
    """From the strongest proof to none."""

    BYTES = "same bytes"
    CODE = "same code"
    OUTPUTS = "equal outputs"
    REFUSED = "refused alike"
    NOT_RUN = "not run"
    DEPARTS = "departs"


@dataclass(frozen=True)
class Row:
    """One package's verdict, with figures of old and new where they were taken."""

    package: str
    verdict: Verdict
    reasons: tuple[str, ...] = ()
    static: tuple[int | None, int | None] | None = None
    executed: tuple[int, int] | None = None
    ratio: float | None = None
    noise: float | None = None

    def plain(self) -> dict[str, Any]:
        """As JSON has it."""
        return {**vars(self), "verdict": self.verdict.value}


def compare(name: str, old: Path, new: Path, measure: Measure) -> Row:
    """Compare two folders of one package; `measure` runs them if their code differs."""
    differing = sorted(_differing(old, new))
    if not differing:
        return Row(name, Verdict.BYTES)
    static, changed = _code(old, new)
    said = list(_said_otherwise(old, new, differing))
    row = Row(name, Verdict.OUTPUTS, (*changed, *said), static)
    if "golden.bin" in differing or _TENSORS in said:
        return replace(row, verdict=Verdict.DEPARTS)
    if not changed:
        return replace(row, verdict=Verdict.CODE)
    for _ in range(_ATTEMPTS):
        found = measure(old, new)
        judgement = judged(row, found)
        if judgement.verdict is not Verdict.DEPARTS or found.ratio is None:
            break
    return judgement


def _code(old: Path, new: Path) -> tuple[tuple[int | None, int | None] | None, list[str]]:
    """How many instructions both have, and what of the code and its data differs."""
    before, after = _library(old), _library(new)
    if before is None or after is None:
        return None, ["without a static library nothing is known of the code"]
    static = before.instructions(), after.instructions()
    is_same = before.digests() == after.digests()
    return static, [] if is_same else list(_changed(before, after))


def judged(row: Row, found: Measured) -> Row:
    """The row with what running both packages says."""
    row = replace(row, executed=found.executed, ratio=found.ratio, noise=found.noise)
    if found.obstacle:
        return _ended(row, Verdict.NOT_RUN, found.obstacle)
    if found.difference:
        return _ended(row, Verdict.DEPARTS, found.difference)
    if found.note:
        row = replace(row, reasons=(*row.reasons, found.note))
    if found.executed and found.executed[1] > found.executed[0] * (1 + ALLOWED):
        more = found.executed[1] / found.executed[0] - 1
        return _ended(row, Verdict.DEPARTS, f"{more:.1%} more instructions are executed")
    if found.ratio and found.noise is not None and found.ratio > 1 + max(found.noise, ALLOWED):
        text = f"{found.ratio:.3f} of the time, beyond {found.noise:.1%} from itself"
        return _ended(row, Verdict.DEPARTS, text)
    return row


def refused(name: str, old: str | None, new: str | None) -> Row:
    """The row of a package that one revision, or each of them, could not build."""
    if old is not None and old == new:
        return Row(name, Verdict.REFUSED, (_first_line(old),))
    said = [f"{side}: {_first_line(text)}" for side, text in (("old", old), ("new", new)) if text]
    return Row(name, Verdict.DEPARTS, tuple(said))


def _ended(row: Row, verdict: Verdict, reason: str) -> Row:
    return replace(row, verdict=verdict, reasons=(reason, *row.reasons))


def _first_line(text: str) -> str:
    return (text.strip().splitlines() or ["nothing was said"])[0]


def _differing(old: Path, new: Path) -> Iterator[str]:
    """Files that differ; of the manifest, without the digests of kernels."""
    for name in {path.name for folder in (old, new) for path in folder.iterdir()}:
        paths = old / name, new / name
        if not all(path.is_file() for path in paths):
            yield name
        elif name == MANIFEST:
            if _stripped(paths[0]) != _stripped(paths[1]):
                yield name
        elif paths[0].read_bytes() != paths[1].read_bytes():
            yield name


def _stripped(path: Path) -> dict[str, Any]:
    """A manifest without the digests of kernels' texts and of the tables they were made from."""
    tree: dict[str, Any] = json.loads(path.read_bytes())
    for certificate in tree.get("provenance", {}).get("kernels", {}).values():
        for name in ("text", "instructions"):
            certificate.pop(name, None)
    return tree


def _library(folder: Path) -> Library | None:
    package = json.loads((folder / MANIFEST).read_bytes())["name"]
    path = folder / f"lib{package}.a"
    return read(path, package) if path.is_file() else None


def _said_otherwise(old: Path, new: Path, differing: list[str]) -> Iterator[str]:
    """What differs beside code: files, and fields of the manifest that name no code."""
    for name in differing:
        if name.endswith(_TEXTS) or name in ("golden.bin", "NOTICE"):
            yield f"{name} differs"
        elif not all((folder / name).is_file() for folder in (old, new)):
            yield f"only one has {name}"
    before, after = (_stripped(folder / MANIFEST) for folder in (old, new))
    if any(before[name] != after[name] for name in ("inputs", "outputs")):
        yield _TENSORS
    for name in ("abi_version", "manifest_version", "memory", "target"):
        if before[name] != after[name]:
            yield f"manifest: {name} differs"


def _changed(old: Library, new: Library) -> Iterator[str]:
    """Functions that differ, and data if nothing else does, in a few words."""
    before, after = old.functions(), new.functions()
    gone = Counter(digest for _, digest in before.values())
    come = Counter(digest for _, digest in after.values())
    left = {name: unit for name, (unit, digest) in before.items() if digest not in come}
    right = {name: unit for name, (unit, digest) in after.items() if digest not in gone}
    own = [name for name in left if name in right and _differs(left[name], right[name])]
    others = [f"{name} is gone" for name in left if name not in right]
    others += [f"{name} is new" for name in right if name not in left]
    texts = [f"{name}: {_where(left[name], right[name])}" for name in own] + others
    yield from texts[:_SHOWN]
    if len(texts) > _SHOWN:
        yield f"{len(texts) - _SHOWN} more functions changed"
    if not texts:
        yield "no function changed, but data did, or what functions refer to"


def _differs(old: Unit, new: Unit) -> bool:
    """Whether a function's own code differs, not only what it refers to."""
    return old.content != new.content or len(old.references) != len(new.references)


def _where(old: Unit, new: Unit) -> str:
    before, after = old.instructions(), new.instructions()
    if before is None or after is None:
        return f"{len(old.content)} bytes became {len(new.content)}"
    same = next(
        (i for i, pair in enumerate(zip(before, after, strict=False)) if pair[0] != pair[1]),
        min(len(before), len(after)),
    )
    if len(before) != len(after):
        return f"{len(before)} instructions became {len(after)}, from number {same + 1} on"
    count = sum(a != b for a, b in zip(before, after, strict=True))
    return f"{count} of {len(before)} instructions changed, the first is number {same + 1}"
