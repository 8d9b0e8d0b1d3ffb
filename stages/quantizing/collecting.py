"""From where on the layers of a batch that is taken apart compute all of its pictures at once.

Those are the last layers, if they are mostly weights, which a single picture would have to read as
all of them do.
"""

from __future__ import annotations

from typing import Any

from tvm import relax
from tvm.ir.attrs import DictAttrs

from stages.kinds import Model
from stages.qnn.builder import bindings_of, outputs_of, variables_in
from stages.qnn.footprint import stored
from stages.qnn.registry import attributes, shape_of

MOST_WEIGHTS = 16
"""Bytes of weights for one that is stored between the layers of a picture, at most, of layers that
compute one picture after the other. Timed in the network, eight pictures at once take: of
ResNet-18's first three stages (0.1, 1 and 8) 1.6, 1.3 and 1.15 times as long as one after the
other, of its fourth stage (45) 0.78 to 0.94, of a last matrix product (500) 0.22."""
ALIGNMENT = 64
"""Of where each picture begins among those that are collected, bytes."""


def first_together(model: Model, batch: int) -> int | None:
    """The place of the binding of `main` from which on all pictures are computed at once.

    Behind it there are most bytes of weights, less `MOST_WEIGHTS` times those stored for a picture;
    None where the latter are more, wherever one begins.
    """
    main = model.module["main"]
    bindings, written = bindings_of(main), stored(model)
    outputs = outputs_of(main)
    returned = {binding.value for binding in bindings if binding.var in outputs}
    weights = [_shared_bytes(model, binding) for binding in bindings]
    handed_over = _HandedOver(main)
    balance, most, first = 0.0, 0.0, None
    for at in reversed(range(len(bindings))):
        balance += weights[at] - MOST_WEIGHTS * written.get(bindings[at].var, 0) / batch
        is_possible = at == 0 or all(
            variable not in returned and _is_in_line(variable, written, batch)
            for variable in (handed_over.at(at) if balance > most else ())
        )
        if balance > most and is_possible:
            most, first = balance, at
    # What has no weights before has nothing to be gained by pictures that are apart.
    return 0 if first is not None and not any(weights[:first]) else first


def _shared_bytes(model: Model, binding: Any) -> int:
    """Bytes of constants that an operator reads but once where it has all pictures.

    None of a convolution that moves by several pixels: pictures do not join in one long line there
    (`stages.qnn.offers.are_joinable`), and eight of them took 1.1 to 2 times as long together.
    """
    is_ours = isinstance(getattr(binding.value, "attrs", None), DictAttrs)
    if is_ours and max(attributes(binding.value).get("strides", [1])) > 1:
        return 0
    names = (str(variable.name) for variable in variables_in(binding.value))
    return sum(int(model.params[name].nbytes) for name in names if name in model.params)


class _HandedOver:
    """What is read behind a place in `main` and known before it, but for constants."""

    def __init__(self, main: Any) -> None:
        outputs = outputs_of(main)
        self.known = dict.fromkeys(main.params[: int(main.attrs["num_input"])], -1)
        self.read: dict[Any, int] = {}
        for at, binding in enumerate(bindings_of(main)):
            self.known[binding.var] = at
            if binding.var not in outputs:
                self.read |= dict.fromkeys(variables_in(binding.value), at)

    def at(self, place: int) -> list[Any]:
        """The variables that are handed over to the binding at `place` and those behind it."""
        return [v for v, at in self.known.items() if at < place <= self.read.get(v, -1)]


def _is_in_line(variable: Any, written: dict[Any, int], batch: int) -> bool:
    """Whether pictures of a variable can be stored one behind the other, each aligned."""
    is_tensor = variable in written and isinstance(variable.ty, relax.TensorType)
    if not is_tensor or shape_of(variable.ty)[:1] != (batch,):
        return False
    return written[variable] % (batch * ALIGNMENT) == 0
