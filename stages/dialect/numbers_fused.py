"""Arithmetic on what is computed next and stored nowhere, so that it need not be integers, or
within bounds, as the dialect has it."""

from __future__ import annotations

from stages.dialect.numbers import MAGIC, Numbers, Value
from stages.dialect.numbers_tir import TirNumbers, rounded_by_sum
from stages.dialect.processor import converts_slowly, narrows_by_words


class WholeNumbers(TirNumbers):
    """TIR expressions whose result, if it is `saturated`, stays float32 for one more float step."""

    def saturated(
        self, x: Value, zero_point: int, low: int, high: int, *, fits_word: bool = False
    ) -> Value:
        """The saturated integer as a float32; the zero point is added as `MAGIC` is taken away.

        Where floats have an instruction that rounds, integers are clipped.
        """
        if narrows_by_words() and not converts_slowly():
            least, most = (self.constant(bound - zero_point, "int32") for bound in (low, high))
            clipped = self.minimum(self.maximum(self.nearest(x), least), most)
            return self.cast(clipped + zero_point, "float32")
        least, most = (self.constant(bound - zero_point, "float32") for bound in (low, high))
        moved = rounded_by_sum(self.minimum(self.maximum(x, least), most))
        return moved - self.constant(MAGIC - zero_point, "float32")


class UnsaturatedNumbers(TirNumbers):
    """TIR expressions whose result, where it is `saturated`, may lie outside of the bounds.

    So that saturating makes the same of it, what is rounded must fit 31 bits.
    """

    def saturated(
        self, x: Value, zero_point: int, low: int, high: int, *, fits_word: bool = False
    ) -> Value:
        """`x` rounded, with the zero point added, but not clipped to the bounds."""
        return self.nearest(x) + zero_point


LONGEST_WORD = (1 << 15) - 1
"""The largest integer of 16 bits."""


class WordNumbers(TirNumbers):
    """TIR expressions of integers that 16 bits hold, and are computed in."""

    def cast(self, x: Value, dtype: str) -> Value:
        """An int16 in place of an int32."""
        return super().cast(x, "int16" if dtype == "int32" else dtype)


WHOLE_TIR: Numbers = WholeNumbers()
UNSATURATED_TIR: Numbers = UnsaturatedNumbers()
WORD_TIR: Numbers = WordNumbers()
