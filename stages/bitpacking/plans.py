"""What is chosen for a linear layer: its kernel, and the layout in which that reads its data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from stages.bitpacking.bias_folding import fold_bias, padded_to
from stages.bitpacking.depthwise_plans import DepthwisePlan
from stages.bitpacking.edge_layouts import Layout
from stages.bitpacking.linear_layers import Layer
from stages.bitpacking.sums import most_of
from stages.bitpacking.window import Window
from stages.dialect.calls import attributes
from stages.graph.composites import is_batched
from stages.graph.sum_bounds import bounds_of_layer
from stages.kernels import packed_conv2d
from stages.kernels.channel_groups import Groups, dense, taken
from stages.kernels.packed_winograd import packed_winograd
from stages.kernels.packing import pack_weights, round_up
from stages.kernels.signature import BLOCK, KernelSignature
from stages.kernels.signature_text import signature_text
from stages.kinds import Array
from stages.nodes import Var


@dataclass(frozen=True)
class LinearPlan:
    """A linear layer, its kernel, and how its data lie."""

    layer: Layer
    kernel: KernelSignature
    window: Window
    groups: Groups
    """Which channels are multiplied with which."""
    layout: Layout

    @property
    def signature(self) -> KernelSignature:
        """The kernel, on a tensor that may hold more than it reads."""
        stored = self.layout.stored
        return self.kernel if stored is None else self.kernel.reading(stored)

    @property
    def is_computed(self) -> bool:
        """Whether its weights are computed, so that nobody knows their sums."""
        return is_batched(self.layer.call)

    @property
    def origin(self) -> list[int]:
        """Where the first window begins, in a layout whose halo may be larger."""
        return self.layout.halo.origin(self.window.padding.sides)

    def most(self, constant: Array) -> Array | None:
        """The largest size of the sums of a channel plus a constant, int64 [O]; None where the
        weights are computed, or floats."""
        if self.is_computed or self.kernel.is_float:
            return None
        return most_of(bounds_of_layer(self.layer.call, self.layer.weights), constant)

    @property
    def packed_weights(self) -> Array:
        """The weights as the kernel takes them."""
        padded = padded_to(dense(self.layer.weights, self.groups.count), self.layout)
        if reads := self.groups.reads(self.signature):
            padded = taken(padded, reads)
        return pack_weights(self.signature, padded, self.window.transform)

    def corrected(self) -> tuple[Array, dict[str, Any]]:
        """The bias that `fold_bias` gives, and what the kernel does to raw sums for it.

        Floats have neither zero points nor scales.
        """
        outputs = self.layer.weights.shape[0]
        if self.is_computed or self.kernel.is_float:
            dtype = np.float32 if self.kernel.is_float else np.int32
            bias = np.zeros((1, round_up(outputs, BLOCK)), dtype)
            return bias, {"scale": 1, "border": [0, 0, 0, 0]}
        attrs = attributes(self.layer.call)
        scale, bias, border = fold_bias(
            self.signature,
            self.layer.weights,
            self.layout.padded_channels,
            (attrs["data_zero_point"], attrs["weight_zero_point"]),
            self.layout.halo,
            self.window,
        )
        return bias, {"scale": scale, "border": border}

    def convolve(self, data: Var, weights: Var, bias: Var, **attrs: Any) -> Any:
        """The call of the kernel: the first window begins at `origin` of data that lie so, and
        with the first tile of tiles."""
        count = self.groups.count
        outputs, *_, inputs = self.layer.weights.shape
        named = {
            "signature": signature_text(self.signature),
            **self.window.attributes(self.layout.packed_rows, self.layout.phases),
            **attrs,
            "channels": [count * inputs, outputs],
        }
        if self.signature.is_transformed:
            return packed_winograd(data, weights, bias, tile=self.window.tile, **named)
        return packed_conv2d.packed_conv2d(
            data, weights, bias, origin=self.origin, groups=count, **named
        )


Plan = LinearPlan | DepthwisePlan
Plans = Mapping[Var, Plan]
"""Variable of `main` → how the layer that gives it is computed."""
