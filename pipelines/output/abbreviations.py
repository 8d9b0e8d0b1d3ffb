"""Long names made short for tables and figures, so that different names stay different."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

ELLIPSIS = "…"
_SEPARATORS = "/;:._- "
_LEAST = 3
"""Characters in which something can be left out: one, what is left out, one."""


def shortened(names: Iterable[str], width: int) -> dict[str, str]:
    """Return what to show for each name: at most `width` characters, and no two alike.

    Names that fit stay as they are. Others lose what all of them begin and end with and, where that
    is not enough, their middle. A name is longer than `width` only if there are more names than
    texts of that length that still tell them apart.
    """
    every = dict.fromkeys(names)
    shown = {name: name for name in every if len(name) <= width}
    taken = set(shown)
    long = [name for name in every if len(name) > width]
    for name, text in _apart(long, max(width, _LEAST)).items():
        shown[name] = _free(name, text, width, taken)
        taken.add(shown[name])
    return {name: shown[name] for name in every}


def column(cells: Iterable[str], width: int) -> list[str]:
    """Return a table's column with its cells made short."""
    texts = list(cells)
    shown = shortened(texts, width)
    return [shown[text] for text in texts]


def _apart(names: Sequence[str], width: int) -> dict[str, str]:
    """Return distinct names made short as a set."""
    if len(names) < 2:
        return {name: _elided(name, width) for name in names}
    start, end = _ends(names)
    cores = {name: name[start : len(name) - end] for name in names}
    spare = width - max(map(len, cores.values())) - 2 * len(ELLIPSIS)
    if spare >= 0:
        first = start - _context(names[0][:start][::-1], spare)
        behind = _context(names[0][len(names[0]) - end :], spare - (start - first))
        return {name: _framed(name, first, len(name) - end + behind) for name in names}
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(_elided(name, width), []).append(name)
    shown: dict[str, str] = {}
    for text, group in groups.items():
        shown |= {group[0]: text} if len(group) == 1 else _without_ends(group, width)
    return shown


def _without_ends(group: Sequence[str], width: int) -> dict[str, str]:
    """Return names without what all of them begin and end with, which is something."""
    start, end = _ends(group)
    cores = {name: name[start : len(name) - end] for name in group}
    inner = _apart(list(cores.values()), max(width - 2 * len(ELLIPSIS), _LEAST))
    return {name: f"{ELLIPSIS}{inner[core]}{ELLIPSIS}" for name, core in cores.items()}


def _ends(names: Sequence[str]) -> tuple[int, int]:
    """How many characters all names begin with, and how many of the others all end with."""
    start = _shared(names)
    return start, min(_shared([name[::-1] for name in names]), min(map(len, names)) - start)


def _shared(names: Sequence[str]) -> int:
    """How many characters all names begin with."""
    first, last = min(names), max(names)
    pairs = enumerate(zip(first, last, strict=False))
    return next((at for at, (one, other) in pairs if one != other), min(len(first), len(last)))


def _context(shared: str, most: int) -> int:
    """How much to keep of what stands beside a difference: whole words, as far as there is room."""
    ends = [at for at, char in enumerate(shared) if char in _SEPARATORS]
    return max((at for at in (*ends, len(shared)) if at <= most), default=0)


def _framed(name: str, first: int, last: int) -> str:
    before = ELLIPSIS if first else ""
    return f"{before}{name[first:last]}{ELLIPSIS if last < len(name) else ''}"


def _elided(text: str, width: int) -> str:
    """A text without its middle, if it is long."""
    if len(text) <= width:
        return text
    begin = (width - len(ELLIPSIS)) // 2
    return f"{text[:begin]}{ELLIPSIS}{text[len(text) - (width - begin - len(ELLIPSIS)) :]}"


def _free(name: str, text: str, width: int, taken: Iterable[str]) -> str:
    """A text that no other name has: the one given, else with a number, else the name itself."""
    if len(text) <= width and text not in taken:
        return text
    for number in range(2, 10 ** max(width - _LEAST, 0)):
        mark = f"{ELLIPSIS}{number}"
        numbered = f"{name[: width - len(mark)]}{mark}"
        if len(numbered) > width:
            break
        if numbered not in taken:
            return numbered
    return _whole(name, taken)


def _whole(name: str, taken: Iterable[str]) -> str:
    while name in taken:
        name += ELLIPSIS
    return name
