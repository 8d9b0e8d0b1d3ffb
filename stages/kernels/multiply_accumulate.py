"""What every family of multiply-accumulate kernels says of itself.

A family is a dataclass below `MultiplyAccumulate`: its fields are what its kernels differ in, and
it overrides the facts that are other than here. Signatures ask for these facts, and name no family.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from stages.kernels.operand_storage import BYTE_BITS, BYTE_LIMIT, WORD_BITS, Element, WeightCode

Family = Literal["popcount", "lookup", "mac8", "mac16", "macf32", "macbf16", "macf16"]
"""How the name of a kernel begins."""
_FAMILIES: dict[Element, Family] = {
    "int8": "mac8",
    "int16": "mac16",
    "float32": "macf32",
    "bfloat16": "macbf16",
    "float16": "macf16",
}
_PER_WORD: dict[Element, int] = {
    "int8": 4,
    "int16": 2,
    "float32": 1,
    "bfloat16": 2,
    "float16": 2,
}


class MultiplyAccumulate:
    """The facts of most families: unsigned bytes by signed ones, added up in lanes of 32 bits."""

    group: int
    """Neighbouring channels that go to one lane of 32 bits in one instruction."""
    code: WeightCode | None = None
    """How weights are stored, where that is in fewer bits than they are multiplied in."""
    rebased: bool = False
    """Whether activations are stored less `offset`."""
    is_tiled: ClassVar[bool] = False
    """Whether it multiplies matrices in tile registers (AMX)."""
    is_transformed: ClassVar[bool] = False
    """Whether it multiplies what Winograd's transforms make of pixels and weights."""
    is_widened: ClassVar[bool] = False
    """Whether it reads bytes as integers of 16 bits, which its caller makes of them."""
    spans_rows: ClassVar[bool] = False
    """Whether the two pixels of a tile may be any distance apart, so that one is the last of a row
    and the other the first of the next one."""

    @property
    def bits(self) -> int:
        """Width of the lanes that products are added up in; 32 needs no flush."""
        return WORD_BITS

    @property
    def activation_bits(self) -> int:
        """Bits of the levels that it can multiply."""
        return BYTE_BITS

    @property
    def weight_limit(self) -> int:
        """The largest magnitude of a weight that it can multiply by."""
        return BYTE_LIMIT

    @property
    def element(self) -> Element:
        """What weights are."""
        return "int8"

    @property
    def offset(self) -> int:
        """What is taken off activations before they are multiplied."""
        return 0

    @property
    def kernel_offset(self) -> int:
        """What of `offset` a kernel takes off itself: all, but where it is off what is stored."""
        return self.offset

    @property
    def pixels(self) -> int:
        """Pixels of a tile that one instruction multiplies."""
        return 1

    @property
    def channels_per_word(self) -> int:
        """Channels whose weights are in one word."""
        return _PER_WORD[self.element]

    @property
    def family(self) -> Family:
        """How the name of a kernel begins."""
        return _FAMILIES[self.element]

    @property
    def step(self) -> int:
        """Words of a window that are taken at a time; its rows have a multiple of that."""
        return 1

    @property
    def loads_ahead(self) -> bool:
        """Whether it loads a pixel's words a step before it multiplies them: a core that runs in
        order would wait for them at the beginning of each step."""
        return False

    @property
    def multiplies_by_lane(self) -> bool:
        """Whether it multiplies by one lane of a register of a pixel's words (Arm)."""
        return False
