"""From where on the layers of a split batch compute all of its images at once.

Those are the last layers, if they are mostly weights, which a single image would have to read as
all of them do.
"""

from __future__ import annotations

from typing import Any

from tvm import relax
from tvm.ir.attrs import DictAttrs

from stages.dialect.calls import attributes, shape_of
from stages.graph.bindings import bindings_of, variables_in
from stages.kernels.signature import ALIGNMENT
from stages.kinds import Model
from stages.nodes import Var, VarBinding
from stages.quantizing.footprint import stored

MOST_WEIGHTS = 16
"""Bytes of weights for one that is stored between the layers of an image, at most, of layers that
compute one image after the other. Timed in the network, eight images at once take: of
ResNet-18's first three stages (0.15, 1 and 8) 1.6, 1.3 and 1.15 times as long as one after the
other, of its fourth stage (67) 0.78 to 0.94, of its last matrix product (128) 0.22."""


def first_together(model: Model, batch: int) -> int | None:
    """The place of the binding of `main` from which on all images are computed at once.

    Behind it there are most bytes of weights, less `MOST_WEIGHTS` times those that are stored for a
    image or collected for it; None where the latter are more, wherever one begins.
    """
    cuts = Cuts(model, batch)
    balance, most, first = 0.0, 0.0, None
    for at in reversed(range(len(cuts.bindings))):
        balance += _shared_bytes(model, cuts.bindings[at])
        balance -= MOST_WEIGHTS * cuts.stored.get(cuts.bindings[at].var, 0) / batch
        if balance > most and cuts.is_possible(at):
            gained = balance - MOST_WEIGHTS * cuts.collected_bytes(at) / batch
            if gained >= most:
                most, first = gained, at
    return first


def _shared_bytes(model: Model, binding: VarBinding) -> int:
    """Bytes of constants that an operator reads but once where it has all images.

    Less than none for a convolution that moves by several pixels: images do not join in one long
    row there (`kernels.geometry.are_joinable`), and eight took 1.1 to 2 times as long together.
    """
    names = (str(variable.name) for variable in variables_in(binding.value))
    size = sum(int(model.params[name].nbytes) for name in names if name in model.params)
    is_ours = isinstance(getattr(binding.value, "attrs", None), DictAttrs)
    is_strided = is_ours and max(attributes(binding.value).get("strides", [1])) > 1
    return -size if is_strided else size


class Cuts:
    """Where `main` may be cut into what is computed for each image and what for all at once."""

    def __init__(self, model: Model, batch: int) -> None:
        main = model.module["main"]
        self.batch, self.bindings, self.stored = batch, bindings_of(main), stored(model)
        self._known = dict.fromkeys(main.params[: int(main.attrs["num_input"])], -1)
        self._read: dict[Var, int] = {}
        for at, binding in enumerate(self.bindings):
            self._known[binding.var] = at
            self._read |= dict.fromkeys(variables_in(binding.value), at)  # outputs, too

    def is_possible(self, place: int) -> bool:
        """Whether the bindings from a place on can have what they read of all images at once."""
        return place == 0 or all(map(self._may_be_collected, self._collected(place)))

    def collected_bytes(self, place: int) -> int:
        """Bytes that they read of what the bindings before them computed, of all images."""
        return sum(self.stored[variable] for variable in self._collected(place)) if place else 0

    def _collected(self, place: int) -> list[Any]:
        return [v for v, at in self._known.items() if at < place <= self._read.get(v, -1)]

    def _may_be_collected(self, variable: Var) -> bool:
        """Whether images of it can be stored one behind the other, each of them aligned."""
        if variable not in self.stored:
            return False
        is_tensor = isinstance(variable.ty, relax.TensorType)
        is_batch = is_tensor and shape_of(variable.ty)[:1] == (self.batch,)
        return is_batch and self.stored[variable] % (self.batch * ALIGNMENT) == 0
