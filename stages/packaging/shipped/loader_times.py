"""What a loader has besides, in packages that tell layer times; put where its marks are."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from stages.packaging.shipped.loader import NAME, LibraryError, Network, NetworkError, aligned


# @LAYER_TIME@
class LayerTime(NamedTuple):
    """The time of a layer in one run, and the kernel that computed it.

    Every moment counts for the layers that threads are in, in equal parts for each thread that is
    in one: so times add up to no more than the run took.
    """

    layer: str
    kernel: str
    seconds: float


# @END@
class Profiled(Network):
    """A network that tells layer times."""

    # @PROFILE@
    def profile(self, inputs: Mapping[str, np.ndarray] | np.ndarray) -> list[LayerTime]:
        """Run once: inputs as a call takes them → the time of each layer, in order.

        The first run of a Network is slower than others. LibraryError if the library was built
        without layer times.
        """
        with self._lock:
            if not self._end.alive:
                raise NetworkError(f"{NAME} is closed; make a new Network")
            functions = ("profile", "layers", "layer_name", "layer_kernel", "most_spans")
            try:
                arm, layers, name, kernel, most = (self._entry(f) for f in functions)
                times = self._entry("layer_times")
            except AttributeError:
                raise LibraryError(
                    f"lib{NAME}.so was built without layer times; set package.profile: true in "
                    "the recipe and build it again"
                ) from None
            name.restype = kernel.restype = ctypes.c_char_p
            most.restype = ctypes.c_size_t
            # A span takes 32 bytes.
            spans = aligned(32 * most(self.threads))
            found = np.zeros(layers())
            self._check(arm(self._context, ctypes.c_void_p(spans.ctypes.data), None))
            try:
                self(inputs)
                times(self._context, ctypes.c_void_p(found.ctypes.data))
            finally:
                arm(self._context, None, None)
            return [
                LayerTime(name(i).decode(), kernel(self._context, i).decode(), float(t) * 1e-9)
                for i, t in enumerate(found)
            ]

    # @END@
