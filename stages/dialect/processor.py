"""Float operations that processors have in different forms: fma, and rounding to integers.

Which form an expression takes is read from TVM's current target (`stages.codegen.target_of`), as
TVM's own operators do; without one it takes a form that every processor has.
"""

from __future__ import annotations

from tvm import tirx
from tvm.target import Target
from tvm.target.codegen import target_has_features

from hw.arm_cores import arm_core
from stages.dialect.fcvtns import nearest_by_fcvtns
from stages.nodes import Scalar


def has_fma() -> bool:
    """Whether the processor multiplies and adds at once; LLVM calls a library if it does not."""
    needed = {"x86_64": "fma", "aarch64": "neon"}.get(_architecture(), "vfp4")
    return Target.current() is not None and bool(target_has_features(needed))


def nearest(x: Scalar) -> Scalar:
    """The int32 nearest to a float32, of two the even one.

    LLVM makes x86's CVTPS2DQ of its `lrint` alone.
    """
    if _architecture() == "x86_64":
        return tirx.call_llvm_pure_intrin("int32", "llvm.lrint", x)
    if _architecture() == "aarch64" and str(x.ty.dtype).startswith("float32"):
        return nearest_by_fcvtns(x)
    return tirx.nearbyint(x).astype("int32")


def rounds_by_sums() -> bool:
    """Whether vectors of floats have no rounding of their own (NEON of ARMv7-A)."""
    return _architecture().startswith("armv7")


def narrows_by_words() -> bool:
    """Whether integers become bytes by way of 16 bits, saturated twice (SQXTN, SQXTUN of A64)."""
    return _architecture() == "aarch64"


def converts_slowly() -> bool:
    """Whether it takes longer to convert between integers and floats than to add floats twice."""
    target = Target.current()
    core = arm_core("" if target is None else str(target.attrs.get("mcpu", "")))
    return core is not None and core.converts_slowly


def widens_bytes() -> bool:
    """Whether LLVM makes two permutations of each four bytes that become floats at once (A64)."""
    return _architecture() == "aarch64"


def divides_by_products() -> bool:
    """Whether vectors of floats are best divided by products: Arm's, where these are fused."""
    return not clips_integers() and has_fma()


def clips_integers() -> bool:
    """Whether bytes are best clipped as the integers of 32 bits that floats were rounded to."""
    return not (rounds_by_sums() or narrows_by_words())


def word_of(x: Scalar) -> Scalar:
    """float32 rounded to the nearest int16.

    Everything saturates, FCVTNS too: what 16 bits cannot hold is beyond the bounds of a byte with
    any zero point, and stays so.
    """
    limits = (tirx.const(limit, "int32") for limit in (-(1 << 15), (1 << 15) - 1))
    return tirx.min(tirx.max(nearest(x), next(limits)), next(limits)).astype("int16")


def byte_of_word(word: Scalar, zero_point: int, low: int, high: int) -> Scalar:
    """An int16 plus a zero point, saturated, within the bounds of a byte."""
    if zero_point:
        offset = tirx.const(zero_point, "int16")
        word = tirx.call_llvm_pure_intrin("int16", "llvm.sadd.sat", word, offset)
    bounds = (tirx.const(bound, "int16") for bound in (low, high))
    return tirx.min(tirx.max(word, next(bounds)), next(bounds)).astype("int32")


def narrows_by_saturation() -> bool:
    """Whether integers become bytes by one instruction that saturates (AVX-512, VPMOVUSDB)."""
    is_x86 = _architecture() == "x86_64"
    return is_x86 and bool(target_has_features("avx512bw"))


def saturated(x: Scalar, zero_point: int) -> Scalar:
    """float32 rounded to the nearest integer, plus a zero point in a byte, within 0 and 255.

    What is beyond 32 bits CVTPS2DQ makes the smallest integer, which is the largest unsigned one
    but for the zero point (Intel SDM volume 1, 4.8.3.7), so that nothing is clipped from above
    before it narrows.
    """
    moved = nearest(tirx.max(x, tirx.const(-zero_point, "float32"))) + zero_point
    return tirx.min(moved.astype("uint32"), tirx.const(255, "uint32")).astype("int32")


def _architecture() -> str:
    target = Target.current()
    return "" if target is None else str(target.attrs.get("mtriple", "")).partition("-")[0]
