"""Pricing: what a kernel is predicted to take on a core, from the instructions of its program.

The cost is a core's: the cycles that instructions and loads of operands need at least, by the pipes
they go to (`hw.core_costs`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from hw.core_costs import CoreCosts
from hw.isa import Isa, Operation
from stages.kernels.families import BytePairs
from stages.kernels.kernel_candidates import KernelCandidate
from stages.kernels.lut import ENTRIES
from stages.kernels.packing_choices import reduction_axis
from stages.kernels.signature import BLOCK, KernelSignature
from stages.synthesizing.body import Body
from stages.synthesizing.step_loops import ahead
from stages.synthesizing.vector_program import Program

WAIT, PAIRS = 3, 7
"""Cycles in 32-bit code, of whose registers there are 16 of either kind: for every pixel that an
iteration loads, whose address is calculated anew, and once an iteration; and for every word of byte
pairs, whose products are added before the next ones are made. The in-order model of the Cortex-A53
gave them for the compiled loops of 60 kernels, most of which they price within a fifth."""
LOOP = 4
"""Scalar instructions of the loop over words: two addresses, a comparison and a branch."""


def priced_candidate(
    signature: KernelSignature, body: Body, isa: Isa, costs: CoreCosts, copies: float
) -> KernelCandidate:
    """The candidate of a kernel in which LLVM copies so many registers for a step."""
    tile = body.counters(signature.rows, signature.channels, isa.lanes)
    word: float = 0
    for one in body.passes:
        counts = one.word.counts() + _loads(signature, one.word, isa)
        counts += _spread(signature, one.word, isa)
        if signature.kernel_offset:
            counts[isa[Operation.XOR].name] += signature.rows
        counts[isa[Operation.AND].name] += _copied(signature)
        widening = {f"load_{isa.bytes}": _widening(signature, isa)}
        word += costs.block(_added(counts, widening), LOOP, _chain(one.word, costs))
        word += _waiting(signature, one.word, isa)
    word = (word + _copying(isa, copies, costs)) / signature.step
    load = f"load_{isa.bytes}"
    add = isa[Operation.ADD_32].name
    if signature.sum_index is not None:
        each = signature.rows / isa.lanes
        word += costs.cycles({load: each, add: each})
    ends = sum(one.ends_chain for one in body.passes)
    flushing = Counter({name: count * ends for name, count in body.flush.counts().items()})
    # Load, multiply by the coefficient, add, and a store, which costs as a load.
    ends *= body.registers * body.pixels
    added = isa[Operation.FLOAT_MAC if signature.is_float else Operation.SCALE_ADD_32]
    flushing += Counter({load: 2 * ends, added.name: ends})
    times = len(tile) // body.registers_per_flush
    flush = costs.cycles({name: count * times for name, count in flushing.items()})
    return KernelCandidate(signature, round(word, 3), round(flush, 3))


def rank(candidate: KernelCandidate) -> tuple[float, str]:
    """The key that candidates are sorted by: cycles in the limit of long windows, then names."""
    return candidate.cycles_per_mac, candidate.signature.name


def row_of(signature: KernelSignature, body: Body, isa: Isa) -> float:
    """Beginning a row of the window in all passes, where loops are not left to LLVM."""
    if not signature.coupled:
        return 0.0
    return float(sum(ahead(signature, one.word, isa) + LOOP for one in body.passes))


def _waiting(signature: KernelSignature, word: Program, isa: Isa) -> float:
    """Cycles of an iteration beside its instructions, in 32-bit code."""
    if isa.architecture != "armv7":
        return 0.0
    loads = sum(_is_loaded(name, signature) for name in word.types)
    pairs = signature.step if isinstance(signature.products, BytePairs) else 0
    return WAIT * (loads + 1) + PAIRS * pairs


def _is_loaded(name: str, signature: KernelSignature) -> bool:
    """Whether an input is loaded of a pixel: all of its words at once where lanes are read."""
    return name[0] == "a" and (name.startswith("a0.") or not signature.multiplies_by_lane)


def _copying(isa: Isa, copies: float, costs: CoreCosts) -> float:
    """Cycles of copies: ARM's is an `orr` of a register with itself, x86 cores rename."""
    if isa.is_arm:
        return costs.cycles({isa[Operation.OR].name: copies})
    return copies / costs.issue


def _chain(word: Program, costs: CoreCosts) -> float:
    """Latency of the additions to one counter, which wait for each other from word to word."""
    through: dict[int, float] = {}
    for name, register in word.inputs.items():
        if name[0] == "c":
            through |= dict.fromkeys(register, 0.0)
    for step in word.steps:
        waits = [through[part] for operand in step.operands for part in operand if part in through]
        if waits:
            latency = max(waits) + costs.latency(step.instruction.name)
            through |= dict.fromkeys(step.result, latency)
    return max(through[part] for register in word.outputs.values() for part in register)


def _copied(signature: KernelSignature) -> int:
    """Words that are copied from a register of several, of what does not multiply by lanes."""
    products = signature.products
    is_copied = isinstance(products, BytePairs) and products.words > 1
    return signature.rows * signature.step if is_copied else 0


def _filling(signature: KernelSignature, isa: Isa) -> str:
    """How activations fill a register: words, or LUTs, which may fit once or twice."""
    is_whole = reduction_axis(signature) == "lanes"
    if signature.multiplies_by_lane or signature.pixels > 1 or is_whole:
        return "load"
    if signature.lut is None:
        return "broadcast"
    return "broadcast_half" if signature.lut.groups * ENTRIES < isa.bytes else "load"


def _added(counts: Counter[str], more: Mapping[str, float]) -> dict[str, float]:
    return {name: counts[name] + more.get(name, 0.0) for name in (*counts, *more)}


def _spread(signature: KernelSignature, word: Program, isa: Isa) -> Counter[str]:
    """Registers of words that are made of bytes, each by a shuffle or the like."""
    if signature.multiplies_int16 or signature.is_float:
        return Counter()
    kinds = [kind for name, kind in word.types.items() if name[0] != "c" and kind.bits == 16]
    row = isa[Operation.LOOKUP if Operation.LOOKUP in isa else Operation.ADD_16]
    return Counter({row.name: len(kinds)} if kinds else {})


def _widening(signature: KernelSignature, isa: Isa) -> float:
    """Loads and stores, which cost as loads do, that widen a word's bytes of all pixels.

    It is done once for all tiles of a block.
    """
    if not signature.is_widened:
        return 0
    registers = signature.rows * signature.channels_per_word / (2 * isa.lanes)
    return 2 * registers * signature.channels / BLOCK


def _loads(signature: KernelSignature, word: Program, isa: Isa) -> Counter[str]:
    """Registers of weights, and of activations, that a word of the window needs."""
    filling = _filling(signature, isa)
    counts = Counter[str]()
    whole = ("a", "w") if filling == "load" else ("w",)
    for name, kind in word.types.items():
        if name[0] in whole and signature.coupled:  # by halves (`loop_schedule.py`)
            counts[f"load_{kind.bytes // 2}"] += 2
        elif name[0] == "w":
            counts[f"load_{kind.bytes}"] += 1
        elif _is_loaded(name, signature):
            counts[f"{filling}_{kind.bytes}"] += 1
    return counts
