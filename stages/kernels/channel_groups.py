"""Groups of channels: what a convolution has, and what a kernel takes of them at a time.

A kernel computes a tile of output channels from all input channels that these read. Where groups
are smaller than a tile, neighbouring ones are merged, with weights of 0 between them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from stages.kernels.signature import KernelSignature

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Groups:
    """So many groups, each of `inputs` channels and with `outputs` channels of the output."""

    count: int
    inputs: int
    outputs: int

    def reads(self, signature: KernelSignature) -> tuple[int, ...]:
        """Channels that a tile of a kernel reads, and those of the output that read the same.

        Nothing where it reads all of them.
        """
        for count in range(1, self.count):
            inputs, outputs = count * self.inputs, count * self.outputs
            is_whole = inputs % signature.channels_per_word == 0
            if is_whole and outputs % signature.channels == 0:
                return inputs, outputs
        return ()


WHOLE = Groups(1, 0, 0)
"""All channels as one group."""


def groups_of(count: int, channels: Sequence[int]) -> Groups:
    """So many groups of the channels of an input and an output."""
    inputs, outputs = channels
    return Groups(count, inputs // count, outputs // count)


def first_read(output: Any, reads: Sequence[int], channels: int, least: Callable[..., Any]) -> Any:
    """The first of `channels` that an output channel reads.

    The last ones of the output are fewer, as a rule: what they read ends where the channels do.
    """
    inputs, outputs = reads
    return least(output // outputs * inputs, channels - inputs)


def dense(weight: Array, groups: int) -> Array:
    """Weights [O, KH, KW, I / groups] as [O, KH, KW, I], with zeros between."""
    if groups == 1:
        return weight
    outputs, height, width, inputs = weight.shape
    result = np.zeros((outputs, height, width, groups, inputs), weight.dtype)
    own = np.arange(outputs) // (outputs // groups)
    result[np.arange(outputs), :, :, own] = weight
    return result.reshape(outputs, height, width, groups * inputs)


def taken(weight: Array, reads: Sequence[int]) -> Array:
    """The weights, of [O, KH, KW, C], of the channels that each output channel reads."""
    places = _places(weight.shape[0], reads, weight.shape[3])
    return np.take_along_axis(weight, places, axis=3)


def put_back(weight: Array, reads: Sequence[int], channels: int) -> Array:
    """Weights [O, KH, KW, C] that `taken` was called with, where the others were zeros."""
    result = np.zeros((*weight.shape[:3], channels), weight.dtype)
    np.put_along_axis(result, _places(weight.shape[0], reads, channels), weight, axis=3)
    return result


def _places(outputs: int, reads: Sequence[int], channels: int) -> Array:
    first = first_read(np.arange(outputs), reads, channels, np.minimum)
    places: Array = first[:, None, None, None] + np.arange(reads[0])
    return places
