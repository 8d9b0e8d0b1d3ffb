"""Where micro-kernels of any family find the rows of a window."""

from __future__ import annotations

from stages.kernels.llvm import FunctionText


def row_start(code: FunctionText, ky: str) -> str:
    """Bytes from a window's first row to row `ky`: `row` for each, `wrap` more after every `per`.

    These are constants, and `wrap` is 0 where rows are evenly apart, so that nothing is left of it.
    """
    # In 32 bits, because 32-bit ARM divides longer numbers in a library.
    number, per = (code.let(f"trunc i64 {value} to i32") for value in (ky, "%per"))
    wraps = code.let(f"zext i32 {code.let(f'udiv i32 {number}, {per}')} to i64")
    even = code.let(f"mul nsw i64 {ky}, %row")
    more = code.let(f"mul nsw i64 {wraps}, %wrap")
    return code.let(f"add nsw i64 {even}, {more}")
