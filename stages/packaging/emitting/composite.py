"""A packed composite, read once for lowering: its calls, its main operator, its extent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tvm.ir import Call

from hw.isa import Isa, isa_of
from hw.profile import Hardware
from stages.dialect.calls import attributes, dtype_of, is_op, shape_of
from stages.dialect.names import PERMUTE_DIMS, REARRANGEMENTS
from stages.graph.bindings import bindings_of, outputs_of
from stages.graph.composites import DEPTHWISE, LINEAR, POOL_KINDS, TE
from stages.kernels import operator_names
from stages.kernels.operand_storage import WORD_BYTES
from stages.kernels.packed_conv2d import (
    WEIGHTS_RANK,
    is_convolution,
)
from stages.kernels.signature import BLOCK, KernelSignature
from stages.kernels.signature_text import parse_signature
from stages.kinds import Table
from stages.nodes import Function, TensorType, Var

INPUT_CONVERSIONS = {"permute_dims", "reshape", "qnn.quantize", "qnn.to_bytes"}
"""Operators that treat every channel of a float input alike, up to bytes."""


class Composite:
    """View of a private function that bit-packing made.

    Without tiles a micro-kernel that needs them is replaced by its fallback.
    """

    def __init__(self, function: Function, with_tiles: bool = True) -> None:
        self.function = function
        self.with_tiles = with_tiles
        self.parameters: list[Var] = list(function.params)
        self.outputs: list[Var] = outputs_of(function)
        bindings = bindings_of(function)
        self.results: dict[Var, Var] = {b.var: b.value for b in bindings if b.var in self.outputs}
        """Output variable → the variable it returns."""
        self.calls: dict[Var, Call] = {
            b.var: b.value for b in bindings if isinstance(b.value, Call)
        }
        """Variable → the operator call that computes it, in order."""

    @cached_property
    def main_or_none(self) -> Call | None:
        """The convolution or pool; None for a composite that is elementwise."""
        names = (
            operator_names.QNN_PACKED_CONV2D,
            operator_names.QNN_PACKED_WINOGRAD,
            operator_names.QNN_PACKED_DEPTHWISE,
            *POOL_KINDS,
        )
        return next((call for call in self.calls.values() if call.op.name in names), None)

    @property
    def main(self) -> Call:
        """The convolution or pool, of a composite that has one."""
        assert self.main_or_none is not None, "an elementwise composite"
        return self.main_or_none

    @property
    def is_convolution(self) -> bool:
        """Whether a micro-kernel computes the sums."""
        return self.main_or_none is not None and is_convolution(self.main_or_none)

    @property
    def is_of_levels(self) -> bool:
        """Whether it stands between simulated quantizers, which have become integers.

        Bit-packing makes DEPTHWISE composites of TE ones, which are of pre-quantized models.
        """
        return str(self.function.attrs["composite"]) not in (TE, LINEAR, DEPTHWISE)

    @property
    def has_micro_kernel(self) -> bool:
        """Whether a micro-kernel computes the sums, that of depthwise convolutions included."""
        return self.is_convolution or is_op(self.main_or_none, operator_names.QNN_PACKED_DEPTHWISE)

    @property
    def reads_floats(self) -> bool:
        """Whether the composite starts from a float tensor."""
        return self.main_or_none is None and dtype_of(self.parameters[0].ty) == "float32"

    @property
    def is_image(self) -> bool:
        """Whether it writes, of a float image, nothing but a word for every pixel, or less."""
        names = {str(call.op.name).removeprefix("relax.") for call in self.calls.values()}
        if not self.reads_floats or not names <= INPUT_CONVERSIONS - {"reshape"}:
            return False
        if len(self.outputs) != 1 or len(shape_of(self.parameters[0].ty)) != 4:
            return False
        store = self.store_of(self.outputs[0])
        return (
            is_op(store, operator_names.QNN_TO_BYTES)
            and attributes(store)["channels"] <= WORD_BYTES
        )

    def transpose_before(self, variable: Var) -> Call | None:
        """The transpose between a variable, reshaped at most, and what it is computed from; None if
        there is none."""
        call = self.calls.get(variable)
        while call is not None and str(call.op.name) in REARRANGEMENTS:
            if is_op(call, PERMUTE_DIMS):
                return call
            call = self.calls.get(call.args[0])
        return None

    @cached_property
    def transpose_of_input(self) -> Call | None:
        """The transpose of the float tensor that is read first, reshaped at most; None without."""
        turns = map(self.transpose_before, self.calls)
        return next(
            (turn for turn in turns if turn is not None and self._is_first(turn.args[0])), None
        )

    def _is_first(self, variable: Var) -> bool:
        while variable in self.calls and str(self.calls[variable].op.name) in REARRANGEMENTS:
            variable = self.calls[variable].args[0]
        return bool(variable.same_as(self.parameters[0]))

    @cached_property
    def pixels_per_block(self) -> int:
        """Neighbouring pixels that fill the lanes of one block: more than one for a float image
        of few channels that becomes bytes, where a lane is a byte and not a channel."""
        names = {str(call.op.name).removeprefix("relax.") for call in self.calls.values()}
        if not self.reads_floats or not names <= INPUT_CONVERSIONS or len(self.outputs) != 1:
            return 1
        channels = shape_of(self.outputs[0].ty)[-1]
        if channels != self.extent[2] or channels >= BLOCK or BLOCK % channels:
            return 1
        pixels = BLOCK // channels
        return pixels if self.extent[1] >= pixels else 1

    @cached_property
    def signature(self) -> KernelSignature:
        """The signature of a convolution's micro-kernel."""
        signature = parse_signature(attributes(self.main)["signature"])
        return signature if self.with_tiles else signature.fallback or signature

    @cached_property
    def extent(self) -> tuple[int, int, int]:
        """Height, width and padded channels of what the epilogue runs over."""
        if self.main_or_none is not None:
            return self._nhwc(self.main.ty)
        for call in self.calls.values():
            if is_op(call, operator_names.QNN_FROM_BYTES):
                return self._nhwc(call.ty)
        first = next(
            call for call in self.calls.values() if str(call.op.name) not in REARRANGEMENTS
        )
        is_of_dialect = str(first.op.name).startswith("relax.qnn.")  # may store what it is given
        return self._nhwc(first.args[0].ty if is_of_dialect else first.ty)

    @property
    def images(self) -> int:
        """How many images of a batch the epilogue runs over."""
        return shape_of(self.main.ty)[0] if self.main_or_none is not None else 1

    def _nhwc(self, tensor_type: TensorType) -> tuple[int, int, int]:
        _, height, width, channels = (1, 1, 1, *shape_of(tensor_type)[1:])[-4:]
        return height, width, channels

    def store_of(self, output: Var) -> Call:
        """The call that writes an output."""
        return self.calls[self.results[output]]


@dataclass(frozen=True)
class LoweringInput:
    """What lowering is given: a composite, packed or of tensor expressions (TE), its schedule, and
    the hardware that the kernel is for."""

    function: Function
    schedule: Table
    hardware: Hardware
    with_tiles: bool = True

    @property
    def kind(self) -> str:
        """What canonicalizing or bit-packing calls it."""
        return str(self.function.attrs["composite"])

    @cached_property
    def isa(self) -> Isa:
        """The instruction set."""
        return isa_of(self.hardware)

    @cached_property
    def composite(self) -> Composite:
        """The composite as a view, if it is packed."""
        return Composite(self.function, self.with_tiles)

    def is_te(self, is_one: Callable[..., bool] | None = None, *more: Any) -> bool:
        """Whether it is of tensor expressions (TE), and one of those, if that is asked."""
        return self.kind == TE and (is_one is None or is_one(self.function, *more))

    @property
    def is_linear(self) -> bool:
        """Whether it is a linear layer whose sums become tensors as the user sees them."""
        return self.kind == LINEAR

    @property
    def is_winograd(self) -> bool:
        """Whether it multiplies transformed images."""
        return is_op(self.composite.main_or_none, operator_names.QNN_PACKED_WINOGRAD)

    @property
    def is_tiled(self) -> bool:
        """Whether matrix tiles compute its sums."""
        return self.composite.is_convolution and self.composite.signature.is_tiled

    @property
    def is_depthwise(self) -> bool:
        """Whether it is a depthwise convolution, by taps side by side."""
        return is_op(self.composite.main_or_none, operator_names.QNN_PACKED_DEPTHWISE)

    @property
    def has_pool(self) -> bool:
        """Whether it begins with a pool."""
        main = self.composite.main_or_none
        return main is not None and str(main.op.name) in POOL_KINDS

    @property
    def gives_blocks_of_levels(self) -> bool:
        """Whether sums become levels and nothing else, of channels that fill blocks."""
        composite = self.composite
        channels = int(attributes(composite.main)["channels"][1])
        has_floats = any("float" in dtype_of(call.ty) for call in composite.calls.values())
        return composite.is_of_levels and channels % BLOCK == 0 and not has_floats

    @property
    def has_computed_weights(self) -> bool:
        """Whether each image has weights of its own, which are computed."""
        return len(shape_of(self.composite.main.args[1].ty)) > WEIGHTS_RANK

    def has_form(self, form: str) -> bool:
        """Whether a micro-kernel computes its sums, from what is stored so."""
        return self.composite.is_convolution and self.composite.signature.form == form
