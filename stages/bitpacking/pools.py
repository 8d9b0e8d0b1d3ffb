"""Maximum pools of single bits, on packed words: the largest of many bits is their OR.

Such a pool reads planes instead of bytes, so that its producer packs what it compares anyway, and
32 channels are pooled at once. The halo holds level 0, which never wins.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from stages.bitpacking.edges import FORMS, Edges, Layout, nhwc
from stages.qnn.builder import bindings_of, composite_of, variables_in
from stages.qnn.composites import MOST_TAPS, calls_in
from stages.qnn.methods import Stored
from stages.qnn.registry import attributes, is_op

BITS = Stored(1, (0b10,))
"""Single bits, set for level 1, and no sums of them."""


def pool_planes(module: Any, edges: Edges) -> frozenset[Any]:
    """The calls of pools that read planes; `edges`, the layouts for bytes, are changed for them."""
    found = set()
    bindings = bindings_of(module["main"])
    readers = Counter(v for b in bindings for v in variables_in(b.value))
    # The last one first: what a pool writes, another pool may read.
    for binding in reversed(bindings):
        function = composite_of(module, binding.value)
        pool = None if function is None else _pool(function)
        written = [edges[binding.var, form] for form in FORMS if (binding.var, form) in edges]
        if pool is None or [layout.stored for layout in written] != [BITS]:
            continue
        (source,) = binding.value.args
        if readers[source] > 1:
            continue
        del edges[source, "bytes"]
        halo = list(attributes(pool)["padding"])
        edges[source, "planes"] = Layout("planes", *nhwc(source.ty), 1, BITS, halo)
        found.add(binding.var)
    return frozenset(found)


def _pool(function: Any) -> Any:
    """The operator of a composite that is a maximum pool and nothing else."""
    calls = calls_in(function)
    if len(calls) != 1 or not is_op(calls[0], "relax.qnn.max_pool2d"):
        return None
    kernel = attributes(calls[0])["kernel"]
    return calls[0] if kernel[0] * kernel[1] <= MOST_TAPS else None
