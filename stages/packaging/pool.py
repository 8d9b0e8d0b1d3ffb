"""Pooling over bytes in LLVM IR: the window of one pixel and 32 channels into int32 sums."""

from __future__ import annotations

from stages.qnn.llvm import FunctionText

LANES = 16
INTS, BYTES = "<16 x i32>", "<16 x i8>"


def pool_text(
    name: str, kind: str, zero_point: int, row_bytes: int, pixel_bytes: int
) -> tuple[str, list[str]]:
    """`void name(data, sums, i32 h, i32 w)` over the h x w valid positions from `data`.

    `kind` is `max` (of unsigned levels) or `sum` (of levels minus the zero point). Indices have 32
    bits: out of wider ones LLVM makes 64-bit divisions, which 32-bit ARM leaves to a library.
    """
    code = FunctionText()
    splat = "<" + ", ".join([f"i32 {zero_point}"] * LANES) + ">"
    smax = f"@llvm.umax.v{LANES}i32"
    if kind == "max":
        code.declarations[f"declare {INTS} {smax}({INTS}, {INTS})"] = None

    def tap(pointer: str, carried: list[str]) -> list[str]:
        results = []
        for half, value in enumerate(carried):
            loaded = code.load(BYTES, pointer, 1, half * LANES)
            wide = code.let(f"zext {BYTES} {loaded} to {INTS}")
            if kind == "max":
                results.append(code.let(f"call {INTS} {smax}({INTS} {value}, {INTS} {wide})"))
            else:
                level = code.let(f"sub {INTS} {wide}, {splat}") if zero_point else wide
                results.append(code.let(f"add {INTS} {value}, {level}"))
        return results

    def row(y: str, carried: list[str]) -> list[str]:
        start = code.pointer("%data", code.let(f"mul nuw nsw i32 {y}, {row_bytes}"), "i32")

        def pixel(x: str, values: list[str]) -> list[str]:
            offset = code.let(f"mul nuw nsw i32 {x}, {pixel_bytes}")
            return tap(code.pointer(start, offset, "i32"), values)

        return code.loop("%w", [(INTS, value) for value in carried], pixel, "i32")

    result = code.loop("%h", [(INTS, "zeroinitializer")] * 2, row, "i32")
    for half, value in enumerate(result):
        code.store(INTS, value, "%sums", 4, half * LANES * 4)
    code.do("ret void")
    parameters = ["ptr noalias readonly %data", "ptr noalias %sums", "i32 %h", "i32 %w"]
    return code.function(name, parameters), list(code.declarations)
