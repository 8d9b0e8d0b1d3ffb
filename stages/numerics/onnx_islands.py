"""ONNX Runtime's default session: what it knows of a graph, and what it makes of its islands.

An island is a part of a graph that the session fuses so that another result than that of the graph
as it is written may come out. A package gives the session's result, but where that is wrong or
approximate on purpose: there it gives that of the graph without optimizations.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from stages.kinds import Model

RUNTIME = "ONNX Runtime 1.32"
"""The release whose default session is followed, on x86 with VNNI, on one thread."""
DEFAULT = "the default session"
UNOPTIMIZED = "the unoptimized graph"
INTEGERS = "exact sums, where they are ties a level away"
"""What a package gives where the session adds up products of bytes as floats."""
CLOSE = "either, but for last bits"
"""What a package gives where the last bits of float sums are anyone's."""
ATTRIBUTE = "islands"


@dataclass(frozen=True)
class Session:
    """What the session knows of a graph that its Relax does not say, by the layers of nodes."""

    reductions: frozenset[str] = frozenset()
    """Means and sums that stay float, of which none is a pool."""
    signed: frozenset[str] = frozenset()
    """Quantizers of int8 that stay that. Others become uint8: those whose result one node reads."""
    wrong_pools: frozenset[str] = frozenset()
    """Average pools that QLinearAveragePool divides by numbers that are not theirs."""
    sums_columns: bool = False
    """Pools of floats add up the columns of a window first, as before opset 19, not its rows."""


NOTHING_KNOWN = Session()


@dataclass(frozen=True)
class Island:
    """One island: its layer, what the session makes of it, and what a package gives."""

    layer: str
    runtime: str
    gives: str


def written(islands: Iterable[Island]) -> str:
    """Islands as the attribute of `main` says them."""
    return json.dumps([asdict(island) for island in islands], sort_keys=True)


def islands_of(model: Model) -> tuple[Island, ...]:
    """The islands of a model, none where it is not ONNX's."""
    text = (model.module["main"].attrs or {}).get(ATTRIBUTE)
    return tuple(Island(**island) for island in json.loads(str(text))) if text else ()
