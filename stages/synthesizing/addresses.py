"""Where micro-kernels of any family find the rows of a window."""

from __future__ import annotations

from stages.qnn.llvm import FunctionText


def row_start(code: FunctionText, ky: str) -> str:
    """Bytes from a window's first row to row `ky`: `row` for each, for odd ones `odd` more.

    `odd` is constant, and 0 unless rows lie in phases, so that nothing is left of it then.
    """
    even = code.let(f"mul nuw nsw i64 {ky}, %row")
    more = code.let(f"mul nsw i64 {code.let(f'and i64 {ky}, 1')}, %odd")
    return code.let(f"add nsw i64 {even}, {more}")
