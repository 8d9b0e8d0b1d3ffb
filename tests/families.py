"""Which families of kernels each board has, and which the packages of `recipes/ci` run for it.

What a board has follows from its instruction set. What packages run is kept in `families.json`, as
building them for all boards takes minutes; `doit ci` builds them, and then

    python -m tests.families BOARD ...          # compares what was built with what is kept
    python -m tests.families --write BOARD ...  # keeps what was built

Nothing is kept of `host`, another processor everywhere: what was built for it is held against its
instruction set at once, as a test does with what is kept of others.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from hw.isa import isa_of
from hw.profile import Hardware
from pipelines.builds import plan
from pipelines.builds.plan_execution import PlanExecution
from pipelines.documents.board_files import list_boards
from pipelines.recipe import load
from stages.graph.bindings import bindings_of
from stages.kernels.problems import BFLOAT16, BYTES, FLOAT16, FLOAT32, WIDE_WEIGHTS, Problem
from stages.kernels.signature import KernelSignature
from stages.kernels.wide_families import FloatDots, TransformedDots
from stages.layer_options import Encoding
from stages.synthesizing import wanted
from stages.synthesizing.sketches import signatures_for, tiles_of

KEPT = Path(__file__).with_suffix(".json")
ENCODING: Encoding = "bipolar"
OPERATORS = frozenset(
    ("packed_depthwise", "packed_winograd", "bitpack", "max_pool2d", "window_sum2d", "qlinear_add",
     "qlinear_mul", "qlinear_softmax", "table", "pack_matrices", "requantize", "rescale",
     "direct_conv2d", "sum_in_order")
)  # fmt: skip
"""Operators whose kernels are written for each architecture: they occur for every board."""
CHEAPER = {
    "mac8 narrow_dots": "other products of bytes, or the bits themselves, take less",
    "mac8 dots": "dot products and byte pairs take less than bytes that are widened",
    "mac8 byte_pairs": "dot products of four bytes take less",
    "mac8 signed_dots": "products of matrices take less",
    "mac8 signed_matrix_dots": "products of matrices of unsigned bytes take no more",
    "mac8 paired_dots": "widened bytes take less for these windows",
}
"""Families that a board may have and not run, and why: others compute the same, and cost tables
prefer them."""


def boards() -> list[str]:
    """The boards of which families are kept: all but this machine."""
    return [name for name in list_boards() if name != "host"]


def recipes_of(board: str) -> list[str]:
    """The recipes that are there to watch a board."""
    names = [name for name, _ in load.list_recipes() if name.startswith("ci/")]
    kinds = ("levels", "bytes", "halves")
    return [name for name in names if name in [f"ci/{kind}_{board}" for kind in kinds]]


def family(signature: KernelSignature) -> str:
    """What a kernel is called here: bits by bits, or how products are added up."""
    if (bits := signature.plan) is not None:
        return f"bitserial a{bits.activation_bits}w{bits.weight_bits}"
    if (products := signature.products) is None:
        return "lookup"
    if isinstance(products, TransformedDots):
        return f"winograd {products.of}"
    of = "" if isinstance(products, FloatDots) else f" {products.kind}"
    return f"{products.family}{of}"


def has(hardware: Hardware) -> set[str]:
    """The families of kernels that there are for a processor, whatever they cost."""
    isa = isa_of(hardware)
    few = [Problem(a, w, ENCODING) for a in (1, 2, 3) for w in (1, 2, 3)]
    floats = [FLOAT32, BFLOAT16, *([FLOAT16] if hardware.multiplies_float16 else [])]
    problems = [*few, BYTES, WIDE_WEIGHTS, *floats]
    kernels = (s for p in problems for s in (*signatures_for(p, isa), *tiles_of(p, isa)))
    return {family(signature) for signature in kernels} | OPERATORS


def used(recipe: str) -> set[str]:
    """The families of kernels in a recipe's package, which is built as far as they are chosen."""
    made = plan.of(load.load_recipe(recipe))
    model = PlanExecution(made).load(made.step("bitpacking"))
    calls = (b.value for f in model.module.functions.values() for b in bindings_of(f))
    names = {str(call.op.name) for call in calls if hasattr(getattr(call, "op", None), "name")}
    operators = {name.removeprefix("relax.qnn.") for name in names} & OPERATORS
    return {family(signature) for signature in wanted(model)} | operators


def kept() -> dict[str, list[str]]:
    """Board → the families that packages of its recipes run."""
    found: dict[str, list[str]] = json.loads(KEPT.read_text(encoding="utf-8"))
    return found


def faults(hardware: Hardware, found: Collection[str]) -> Iterator[str]:
    """What is wrong with the families that a board's packages run, in words."""
    there = has(hardware)
    for name in sorted(set(found) - there):
        yield f"{hardware.name}: {name} is used, and is not of its instruction set"
    for name in sorted(there - set(found) - CHEAPER.keys()):
        yield f"{hardware.name}: {name} is of its instruction set, and no recipe runs it"


def differences(board: str) -> Iterator[str]:
    """What is built for a board otherwise than it is kept, in words; of this machine, `faults`."""
    found = _built(board)
    if board not in boards():
        yield from faults(load.load_recipe(f"ci/levels_{board}").hardware, found)
        return
    before = set(kept().get(board, []))
    yield from (f"{board}: {name} is used, and was not" for name in sorted(found - before))
    yield from (f"{board}: {name} is no longer used" for name in sorted(before - found))


def _built(board: str) -> set[str]:
    return set[str]().union(*map(used, recipes_of(board)))


def main(words: Sequence[str]) -> int:
    """Compare or keep; the exit status."""
    named = [word for word in words if word != "--write"] or boards()
    if "--write" in words:
        found = {name: sorted(_built(name)) for name in named if name in boards()}
        text = json.dumps(dict(sorted((kept() | found).items())), indent=1)
        KEPT.write_text(f"{text}\n", encoding="utf-8")
        return 0
    said = [line for board in named for line in differences(board)]
    print("\n".join(said) or f"as it should be: {', '.join(named)}")
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
