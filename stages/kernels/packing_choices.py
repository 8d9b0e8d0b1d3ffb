"""How popcount kernels pack bits, as recipes choose and people read it."""

from __future__ import annotations

from collections.abc import Sequence

from hw.isa import ISAS
from stages.kernels.kernel_candidates import KernelCandidate
from stages.kernels.operand_storage import BYTE_BITS
from stages.kernels.signature import KernelSignature
from stages.layer_options import BitAxis, Packing, ReductionAxis

_BYTES: dict[str, int] = {name: isa.bytes for name, isa in ISAS.items()}


def bit_axis(signature: KernelSignature) -> BitAxis:
    """Where the planes of activations lie; a single one counts as outermost."""
    return "inner" if signature.inner else "outermost"


def reduction_axis(signature: KernelSignature) -> ReductionAxis:
    """What a channel is added up along: its words alone, or one of them in a register's lanes."""
    is_whole = signature.word_bits == BYTE_BITS * _BYTES[signature.isa]
    return "lanes" if is_whole else "words"


def packing_text(signature: KernelSignature) -> str:
    """For example `word 32, bit_axis outermost, reduction_axis words`."""
    axes = f"bit_axis {bit_axis(signature)}, reduction_axis {reduction_axis(signature)}"
    return f"word {signature.word_bits}, {axes}"


def packed_as(
    candidates: Sequence[KernelCandidate], packing: Packing | None
) -> list[KernelCandidate]:
    """The candidates of popcounts that a recipe's packing leaves; without one, all candidates."""
    if packing is None:
        return list(candidates)
    return [o for o in candidates if o.signature.plan is not None and _is_so(o.signature, packing)]


def _is_so(signature: KernelSignature, packing: Packing) -> bool:
    return (
        packing.word in (None, signature.word_bits)
        and packing.bit_axis in (None, bit_axis(signature))
        and packing.reduction_axis in (None, reduction_axis(signature))
    )
