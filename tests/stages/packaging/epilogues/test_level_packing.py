"""What an epilogue stores of a word of levels, compiled, against packing in NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from hw.profile import Hardware
from stages.codegen import compile_object
from stages.dialect.padding import NO_SIDES
from stages.kernels.llvm import FunctionText
from stages.kernels.operand_storage import Stored
from stages.kernels.packing import pack_activations, pack_planes
from stages.kernels.signature import stored_by
from stages.kernels.terms import raw_planes
from stages.packaging.emitting.halo import StoredHalo
from stages.packaging.epilogues.level_packing import stored_words
from tests.compiled import Library
from tests.hw.isa_code import caller
from tests.stages.synthesizing.plans import PLANS
from tests.targets import AARCH64, ARMV7, SSE2, skip_unless_runnable

Array = np.ndarray[Any, Any]
WORDS = 20


def everything() -> list[Stored]:
    """What each plan wants stored, pairs of plans, all plans, and tables nobody asked for."""
    alone = list(dict.fromkeys(stored_by(plan) for plan in PLANS))
    pairs = [a.joined(b) for a in alone for b in alone if a.bits == b.bits]
    whole = []
    for bits in (1, 2, 3):
        same = [stored for stored in alone if stored.bits == bits]
        for other in same[1:]:
            same[0] = same[0].joined(other)
        whole.append(same[0])
    rng = np.random.default_rng(1)
    odd = [
        Stored(
            bits,
            (0, (1 << (1 << bits)) - 1, *(int(x) for x in rng.integers(0, 1 << (1 << bits), 5))),
            (tuple(int(x) for x in rng.integers(-99, 99, 1 << bits)),),
        )
        for bits in (1, 2, 3, 4)
    ]
    return list(dict.fromkeys([*alone, *pairs, *whole, *odd]))


def text(number: int, stored: Stored) -> tuple[str, Sequence[str]]:
    """A function from a word of each digit to the words that are stored."""
    code = FunctionText()
    digits = [code.load("i32", "%digits", 4, 4 * digit) for digit in range(stored.bits)]
    for place, word in enumerate(stored_words(code, stored, digits)):
        code.store("i32", word, "%words", 4, 4 * place)
    code.do("ret void")
    return code.function(f"store{number}", ["ptr %digits", "ptr %words"]), list(code.declarations)


@pytest.mark.parametrize("hardware", (SSE2, AARCH64, ARMV7), ids=lambda item: item.name)
def test_stored_words(hardware: Hardware) -> None:
    skip_unless_runnable(hardware)
    all_stored = everything()
    functions = {}
    for number, stored in enumerate(all_stored):
        function, declarations = text(number, stored)
        buffers = [("uint32", stored.bits), ("uint32", stored.words)]
        parts = [*declarations, function]
        functions[f"k{number}"] = caller(f"k{number}", parts, f"store{number}", buffers)
    library = Library({"k.o": compile_object(functions, hardware)}, hardware)
    rng = np.random.default_rng(2)
    for number, stored in enumerate(all_stored):
        levels = rng.integers(0, 1 << stored.bits, (WORDS // stored.bits, 32)).astype(np.uint8)
        levels[0], levels[1] = 0, (1 << stored.bits) - 1
        for word in levels:
            digits = pack_planes(word, raw_planes(stored.bits))[:, 0]
            found = np.zeros(stored.words, np.uint32)
            library.call(f"k{number}", np.ascontiguousarray(digits), found)
            np.testing.assert_array_equal(found, pack_activations(stored, word)[:, 0], str(stored))


def test_products_of_digits_are_computed_once() -> None:
    """Of three digits there are four products of more than one."""
    plans = [plan for plan in PLANS if plan.activation_bits == 3]
    stored = stored_by(plans[0])
    for plan in plans[1:]:
        stored = stored.joined(stored_by(plan))
    function, _ = text(0, stored)
    assert function.count(" and i32 ") <= 4


def test_halos_are_words_at_level_0() -> None:
    for stored in everything():
        words = {"bits": stored.bits, "planes": stored.planes, "sums": stored.sums}
        halo = StoredHalo.of({"halo": NO_SIDES, **words})
        packed = pack_activations(stored, np.zeros(32, np.uint8))[:, 0]
        assert [word % (1 << 32) for word in halo.elements] == packed.tolist()
