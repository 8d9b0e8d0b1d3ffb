"""Packed words of weights: which bits of a channel lie side by side in a register.

Channel after channel has a word of so many bits, then each has its next one. A word as wide as a
register has the reduction axis in lanes (Cowan et al., CGO 2020, section 3). Activations need no
order of their own: the words of one pixel follow one another, whatever their width.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from stages.kernels.coupling import couple, uncouple
from stages.kernels.operand_storage import BYTE_BITS
from stages.kernels.signature import KernelSignature

Array = np.ndarray[Any, Any]


def in_words(signature: KernelSignature, planes: Array) -> Array:
    """Planes uint32 [..., channels, words] as kernels read them: uint32 [..., words, channels]."""
    *head, channels, count = planes.shape
    size = signature.word_bits // BYTE_BITS
    of_bytes = np.ascontiguousarray(planes.astype("<u4")).view(np.uint8)
    words = of_bytes.reshape(*head, channels, -1, size).swapaxes(-3, -2)
    ordered = couple(words) if signature.coupled else words
    return np.ascontiguousarray(ordered).reshape(-1).view("<u4").reshape(*head, count, channels)


def by_channels(signature: KernelSignature, packed: Array) -> Array:
    """Planes [..., channels, words] of words that `in_words` gave."""
    *head, count, channels = packed.shape
    size = signature.word_bits // BYTE_BITS
    of_bytes = np.ascontiguousarray(packed.astype("<u4")).reshape(*head, -1).view(np.uint8)
    words = of_bytes.reshape(*head, -1, channels, size)
    plain = uncouple(words) if signature.coupled else words
    by_channel = np.ascontiguousarray(plain.swapaxes(-3, -2))
    return by_channel.reshape(-1).view("<u4").reshape(*head, channels, count)
