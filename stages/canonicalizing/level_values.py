"""Which values composites of levels compute, in any network.

Levels are the small integers between simulated quantizers. Layers that read them and thresholds
that give them are marked `of_levels`, and some operators compute on nothing else; integers that
these are computed from, or that become of them, are of levels too.

Composites of levels know floats in two places: between an image of the user's and its quantizer,
and between an accumulator and an output. There they are steps, one value for all or one per
channel, on tensors with their channels last, and a sum with a float image of whole blocks of
channels, such as a residual that nobody quantizes. All else is computed elsewhere: what comes with
integers of its own arithmetic, a convolution of floats and what follows it up to the next
quantizer, an output that is a copy.
"""

from __future__ import annotations

from collections import Counter

from stages.canonicalizing.copy_shared_outputs import copies_of
from stages.dialect import names
from stages.dialect.calls import attributes, dtype_of, is_op, shape_of, tensor_types
from stages.dialect.names import (
    QNN_DEQUANTIZE,
    QNN_QUANTIZE,
    QNN_REQUANTIZE,
    QNN_RESUM,
    QNN_SATURATE,
    QNN_THRESHOLD,
)
from stages.graph.axes import order_of
from stages.graph.bindings import bindings_of, outputs_of, variables_in
from stages.graph.layer_forms import is_level_layer
from stages.kernels.signature import BLOCK
from stages.nodes import Call, Expr, Function, Var, VarBinding

STEPS = ("add", "subtract", "multiply", "divide", "maximum", "minimum")
"""Arithmetic with a constant behind it; `subtract` takes it in front, too."""
OF_LEVELS = (QNN_QUANTIZE, QNN_REQUANTIZE, QNN_SATURATE)
"""Operators that give levels and nothing else."""
LINEAR_ENDINGS = ("conv2d", "dense")
"""How names of products end."""
LAST, FIRST = (0, 2, 3, 1), (0, 3, 1, 2)
"""Where the axes of an image go whose channels are moved last, or back."""


def level_values(main: Function) -> set[Var]:
    """The variables of `main` that composites of levels compute."""
    levels = integers_of_levels(main)
    return _Floats(main, levels).found - copies_of(main) if levels else set()


def integers_of_levels(main: Function) -> set[Var]:
    """Levels, and all integers that these are computed from or become, graph inputs included."""
    tensors = set(main.params[int(main.attrs["num_input"]) :])
    found, joined = set[Var](), list[set[Var]]()
    for binding in bindings_of(main):
        call, variables = binding.value, {binding.var, *variables_in(binding.value)}
        integers = {v for v in variables - tensors if not _is_float(v)}
        joined.append(integers)
        if _is_of_levels(call):
            found |= integers
    size = -1
    while size < len(found):
        size = len(found)
        for integers in joined:
            if not integers.isdisjoint(found):
                found |= integers
    return found


def _is_of_levels(expr: Expr) -> bool:
    """Whether an operator is one of levels by its name, or marked as one."""
    if isinstance(expr, Call) and is_op(expr, QNN_THRESHOLD):
        return bool(attributes(expr).get("of_levels", False))
    return is_level_layer(expr) or is_op(expr, *OF_LEVELS)


def _is_float(variable: Var) -> bool:
    return all("float" in dtype_of(kind) for kind in tensor_types(variable.ty))


class _Floats:
    """What is found from `main`'s first binding to its last, and back for the floats that begin
    with an image: composites of levels compute those that lead to a quantizer alone."""

    def __init__(self, main: Function, levels: set[Var]) -> None:
        count = int(main.attrs["num_input"])
        inputs, self.tensors = set(main.params[:count]), set(main.params[count:])
        self.levels = levels
        self.images, self.heads = set(inputs), set(inputs)
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
        self.elsewhere: set[Var] = set()
        bindings = [b for b in bindings_of(main) if b.var not in outputs_of(main)]
        self.readers = Counter(v for b in bindings_of(main) for v in variables_in(b.value))
        for binding in bindings:
            self._forward(binding)
        quantized = set[Var]()
        """Variables that lead to a quantizer."""
        for binding in reversed(bindings):
            variable, read = binding.var, self._read(binding)
            if variable in self.heads and variable not in quantized:
                self.elsewhere.add(variable)
            if variable in self.elsewhere:
                self.elsewhere |= read & self.heads - inputs
            elif variable in self.heads or variable in self.levels:
                quantized |= read
        self.found = {b.var for b in bindings} - self.elsewhere

    def _read(self, binding: VarBinding) -> set[Var]:
        return set(variables_in(binding.value)) - self.tensors

    def _forward(self, binding: VarBinding) -> None:
        variable, call, read = binding.var, binding.value, self._read(binding)
        if variable in self.levels:
            self.elsewhere |= read & (self.tails - self.sums)  # a quantizer takes channels last
            if str(call.op.name).endswith(LINEAR_ENDINGS):
                self.products.add(variable)
            return
        is_moved = is_op(call, *names.REARRANGEMENTS)
        is_transposed = is_op(call, names.PERMUTE_DIMS)
        is_back = not is_transposed or order_of(call) == FIRST
        is_step = len(read) == 1 and self._is_step(call)
        is_real = is_op(call, QNN_DEQUANTIZE) and read <= self.levels
        if not _is_float(variable):
            self.elsewhere.add(variable)
        elif is_real or (is_step and read <= self.sums) or self._is_added(call, read):
            self.sums.add(variable)
            self.tails.add(variable)
            before = self.products if is_real else self.alone
            if read <= before and all(self.readers[v] == 1 for v in read):
                self.alone.add(variable)
        elif is_moved and is_back and read <= (self.sums if is_transposed else self.tails):
            self.tails.add(variable)
        elif is_moved and read <= self.images and (not is_transposed or order_of(call) == LAST):
            self.heads.add(variable)
            if not is_transposed:
                self.images.add(variable)
        elif is_step and read <= self.heads:
            self.heads.add(variable)
        else:
            self.elsewhere.add(variable)
            if is_op(call, QNN_RESUM):  # its quantizer takes the steps behind it along
                self.heads.add(variable)

    def _is_added(self, call: Call, read: set[Var]) -> bool:
        """Whether an operator adds an image of floats to an accumulator's, which alone waits for
        it."""
        if not is_op(call, names.ADD) or len(read) != 2:
            return False
        if any(shape_of(variable.ty) != shape_of(call.ty) for variable in read):
            return False
        is_whole = len(call.ty.shape) == 4 and shape_of(call.ty)[-1] % BLOCK == 0
        waits = any(v in self.alone and self.readers[v] == 1 for v in read)
        return is_whole and waits and read <= self.sums | self.elsewhere

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
