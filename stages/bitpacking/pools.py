"""Maximum pools of single bits, on packed words: the largest of many bits is their OR.

Such a pool reads planes instead of bytes, so that its producer packs what it compares anyway, and
32 channels are pooled at once. The halo holds level 0, which never wins.
"""

from __future__ import annotations

from typing import Any

from tvm.ir import Call

from stages.bitpacking.edges import Edges, Layout, nhwc
from stages.qnn.builder import bindings_of, outputs_of
from stages.qnn.registry import attributes, is_op

MOST_POSITIONS = 64
"""Of a window, whose words are combined in one expression."""


def pool_planes(module: Any, edges: Edges) -> frozenset[Any]:
    """The calls of pools that read planes; `edges`, the layouts for bytes, are changed for them."""
    found = set()
    bindings = [b for b in bindings_of(module["main"]) if isinstance(b.value, Call)]
    # The last one first: what a pool writes, another pool may read.
    for binding in reversed(bindings):
        pool = _pool(module[binding.value.op])
        written = {form: layout for (v, form), layout in edges.items() if v.same_as(binding.var)}
        if pool is None or set(written) != {"planes"}:
            continue
        stored, source = written["planes"].stored, binding.value.args[0]
        readers = sum(source.same_as(a) for other in bindings for a in other.value.args)
        if stored is None or stored.bits != 1 or stored.sums or readers > 1:
            continue
        del edges[source, "bytes"]
        edges[source, "planes"] = Layout(
            "planes", *nhwc(source.ty), 1, stored, halo=list(attributes(pool)["padding"])
        )
        found.add(binding.var)
    return frozenset(found)


def _pool(function: Any) -> Any:
    """The operator of a composite that is a maximum pool and nothing else."""
    calls = [b.value for b in bindings_of(function) if b.var not in outputs_of(function)]
    if len(calls) != 1 or not is_op(calls[0], "relax.qnn.max_pool2d"):
        return None
    kernel = attributes(calls[0])["kernel"]
    return calls[0] if kernel[0] * kernel[1] <= MOST_POSITIONS else None
