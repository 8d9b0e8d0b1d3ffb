"""What stays float in a network with quantizers, beside what its composites compute.

Composites of quantized layers know floats in two places: between a picture of the user's and
its quantizer, and between an accumulator and an output. There they are steps, one value for all or
one per channel, on tensors with their channels last, and a sum with a float picture of whole blocks
of channels, such as a residual that nobody quantizes. Everything else in float is an island: a
convolution of floats and what follows it up to the next quantizer.
"""

from __future__ import annotations

from collections import Counter

from stages.dialect.calls import dtype_of, is_op, shape_of, tensor_types
from stages.dialect.names import QNN_RESUM
from stages.graph.axes import order_of
from stages.graph.bindings import bindings_of, outputs_of, variables_in
from stages.graph.composites import MOVED
from stages.kernels.signature import BLOCK
from stages.nodes import Call, Function, Var, VarBinding

STEPS = ("add", "subtract", "multiply", "divide", "maximum", "minimum")
"""Arithmetic with a constant behind it; `subtract` takes it in front, too."""

PRODUCTS = ("conv2d", "dense")
"""How names of products end."""
LAST, FIRST = (0, 2, 3, 1), (0, 3, 1, 2)
"""Where the axes of a picture go whose channels are moved last, or back."""


def islands(function: Function) -> set[Var]:
    """The variables of `main` that are computed in float islands."""
    return Islands(function).found


class Islands:
    """What is found from `main`'s first binding to its last, and back for what only islands read
    of a picture."""

    def __init__(self, function: Function) -> None:
        count = int(function.attrs["num_input"])
        inputs, self.tensors = set(function.params[:count]), set(function.params[count:])
        self.pictures, self.heads = set(inputs), set(inputs)
        """Graph inputs, reshaped at most; what quantizers begin with, those with their channels
        moved last or exact sums, and these with steps behind."""
        self.sums: set[Var] = set()
        """Accumulators made float, and these with steps behind them."""
        self.products: set[Var] = set()
        """Accumulators of products."""
        self.alone: set[Var] = set()
        """Those, made float, that nothing else is computed of."""
        self.tails: set[Var] = set()
        """Those, moved back to the source's layout or reshaped at most."""
        self.found: set[Var] = set()
        bindings = [b for b in bindings_of(function) if b.var not in outputs_of(function)]
        self.readers = Counter(v for b in bindings_of(function) for v in variables_in(b.value))
        for binding in bindings:
            self._forward(binding)
        for binding in reversed(bindings):
            if binding.var in self.found:
                self.found |= self._read(binding) & self.heads - inputs

    def _read(self, binding: VarBinding) -> set[Var]:
        return set(variables_in(binding.value)) - self.tensors

    def _forward(self, binding: VarBinding) -> None:
        variable, call, read = binding.var, binding.value, self._read(binding)
        if not all("float" in dtype_of(kind) for kind in tensor_types(variable.ty)):
            self.found |= read & (self.tails - self.sums)  # a quantizer takes channels last
            if str(call.op.name).endswith(PRODUCTS):
                self.products.add(variable)
            return
        is_moved = any(is_op(call, name) for name in MOVED)
        is_transposed = is_op(call, "relax.permute_dims")
        is_back = not is_transposed or order_of(call) == FIRST
        is_step = len(read) == 1 and self._is_step(call)
        is_real = is_op(call, "relax.qnn.dequantize")
        if is_real or (is_step and read <= self.sums) or self._is_added(call, read):
            self.sums.add(variable)
            self.tails.add(variable)
            before = self.products if is_real else self.alone
            if read <= before and all(self.readers[v] == 1 for v in read):
                self.alone.add(variable)
        elif is_moved and is_back and read <= (self.sums if is_transposed else self.tails):
            self.tails.add(variable)
        elif is_moved and read <= self.pictures and (not is_transposed or order_of(call) == LAST):
            self.heads.add(variable)
            if not is_transposed:
                self.pictures.add(variable)
        elif is_step and read <= self.heads:
            self.heads.add(variable)
        else:
            self.found.add(variable)
            if is_op(call, QNN_RESUM):  # its quantizer takes the steps behind it along
                self.heads.add(variable)

    def _is_added(self, call: Call, read: set[Var]) -> bool:
        """Whether an operator adds a picture of floats to an accumulator's, which alone waits for
        it."""
        if not is_op(call, "relax.add") or len(read) != 2:
            return False
        if any(shape_of(variable.ty) != shape_of(call.ty) for variable in read):
            return False
        is_whole = len(call.ty.shape) == 4 and shape_of(call.ty)[-1] % BLOCK == 0
        waits = any(v in self.alone and self.readers[v] == 1 for v in read)
        return is_whole and waits and read <= self.sums | self.found

    def _is_step(self, call: Call) -> bool:
        """Whether an operator is arithmetic with one constant, or with one per channel."""
        name = str(call.op.name).removeprefix("relax.")
        if name not in STEPS or len(call.args) != 2:
            return False
        is_first = [argument in self.tensors for argument in call.args]
        constant = call.args[is_first.index(True)] if any(is_first) else None
        if constant is None or (is_first[0] and name != "subtract"):
            return False
        return shape_of(constant.ty) in ((), shape_of(call.ty)[-1:])
