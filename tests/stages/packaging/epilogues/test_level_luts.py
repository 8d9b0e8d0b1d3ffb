"""Tables as epilogues write them, and whole networks whose layers look their products up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hw.profile import Hardware
from stages.codegen import compile_object
from stages.dialect.padding import NO_SIDES
from stages.kernels.lut import ENTRIES, pack_lut
from stages.layer_options import Encoding
from stages.packaging.emitting.halo import StoredHalo
from stages.packaging.epilogues.block_vectors import BYTES, HALF, BlockVectors
from stages.packaging.epilogues.level_packing import entries
from tests.compiled import Library
from tests.hw.isa_code import caller
from tests.pipelines.test_front_door import verdicts
from tests.stages.pipeline import algorithm, assert_stages_agree
from tests.stages.test_bitpacking import every_reader
from tests.targets import AARCH64, AVX2, AVX512BW, skip_unless_runnable

ROOT = Path(__file__).resolve().parents[4]
FORMS = [(bits, balanced) for bits in (1, 2, 3) for balanced in (False, True)]


def function(bits: int, balanced: bool, hardware: Hardware) -> Any:
    """A function from the levels of 16 channels to their tables."""
    code = BlockVectors(hardware.architecture)
    levels = code.load(BYTES, "%levels", 1)
    for number, table in enumerate(entries(code, levels, bits, balanced)):
        code.store(BYTES, table, "%tables", 1, number * ENTRIES)
    code.do("ret void")
    name = f"k{bits}{int(balanced)}"
    text = code.function(f"bk_{name}", ["ptr %levels", "ptr %tables"])
    parameters = [("uint8", HALF), ("uint8", 4 * HALF)]
    return caller(name, [*code.declarations, text], f"bk_{name}", parameters)


@pytest.mark.parametrize("hardware", [AVX2, AVX512BW, AARCH64], ids=lambda item: item.name)
def test_tables_are_written_as_they_are_packed(hardware: Hardware) -> None:
    skip_unless_runnable(hardware)
    functions = {f"k{n}{int(b)}": function(n, b, hardware) for n, b in FORMS}
    library = Library({"k.o": compile_object(functions, hardware)}, hardware)
    rng = np.random.default_rng(3)
    for bits, balanced in FORMS:
        top = (1 << bits) - 1
        for levels in (np.zeros(16), np.full(16, top), *rng.integers(0, top + 1, (5, 16))):
            found = np.zeros(4 * HALF, np.uint8)
            library.call(f"k{bits}{int(balanced)}", levels.astype(np.uint8), found)
            expected = pack_lut(levels.astype(np.uint8), bits, balanced)[: 4 * HALF]
            np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(("bits", "balanced"), FORMS)
def test_halos_are_tables_at_level_0(bits: int, balanced: bool) -> None:
    packed = pack_lut(np.zeros(32, np.uint8), bits, balanced)
    halo = StoredHalo.of({"halo": NO_SIDES, "bits": bits, "balanced": balanced})
    assert set(packed.tolist()) == set(halo.elements)


@pytest.mark.parametrize("weights", ["unipolar", "bipolar", "signed"])
@pytest.mark.parametrize("activations", ["unipolar", "bipolar", "signed"])
@pytest.mark.parametrize("bits", [(1, 1), (2, 1), (3, 2), (2, 3)])
def test_every_stage_agrees(bits: tuple[int, int], activations: str, weights: Encoding) -> None:
    if "signed" in (activations, weights) and min(bits) == 1:
        pytest.skip("a signed value has two bits at the least")
    model = every_reader(*bits, activations, weights)
    assert_stages_agree(model, "rpi3", algorithm("lookup"))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["host", "rpi3"])
def test_a_block_that_looks_up_is_exact(name: str) -> None:
    """Natively, where this machine looks anything up, and emulated."""
    pytest.importorskip("unicorn", reason="the emulator extra is not installed")
    layers = "layers=[{match: 'layer*', algorithm: lookup}]"
    found = verdicts(ROOT, f"ci/residual_block_a2w1_{name}", layers)
    assert {"exact"} <= set(found.values()) <= {"exact", "not run"}
    assert any(stage.startswith("library") for stage in found)
