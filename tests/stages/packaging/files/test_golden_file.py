"""Golden vectors as a file."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.errors import StageError
from stages.kinds import Golden
from stages.packaging.files.golden_file import read_golden, write_golden
from stages.packaging.program.kernel_program import TensorSpec

DTYPES = ("bool", "int8", "uint8", "int16", "int32", "int64", "float16", "float32", "float64")


@st.composite
def goldens(draw: st.DrawFn) -> tuple[Golden, list[TensorSpec], list[TensorSpec]]:
    samples = draw(st.integers(1, 4))
    names = draw(st.lists(st.text(max_size=120), min_size=1, max_size=4, unique=True))
    cut = draw(st.integers(0, len(names) - 1))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    specs = [
        TensorSpec(
            name, draw(st.sampled_from(DTYPES)), tuple(draw(st.lists(st.integers(1, 5)))[:3])
        )
        for name in names
    ]
    arrays = {
        spec.name: rng.integers(0, 2, (samples, *spec.shape)).astype(spec.dtype) for spec in specs
    }
    ins, outs = specs[:cut], specs[cut:]
    golden = Golden({s.name: arrays[s.name] for s in ins}, {s.name: arrays[s.name] for s in outs})
    return golden, ins, outs


@given(goldens())
def test_what_is_written_is_read(case: tuple[Golden, list[TensorSpec], list[TensorSpec]]) -> None:
    golden, ins, outs = case
    back = read_golden(write_golden(golden, ins, outs), ins, outs)
    for written, read in ((golden.inputs, back.inputs), (golden.outputs, back.outputs)):
        assert list(written) == list(read)
        for name, array in written.items():
            assert array.dtype == read[name].dtype
            np.testing.assert_array_equal(array, read[name])


@given(goldens(), st.data())
def test_a_cut_file_is_refused(
    case: tuple[Golden, list[TensorSpec], list[TensorSpec]], data: st.DataObject
) -> None:
    golden, ins, outs = case
    whole = write_golden(golden, ins, outs)
    with pytest.raises(ValueError, match="damaged golden vectors"):
        read_golden(whole[: data.draw(st.integers(0, len(whole) - 1))], ins, outs)
    with pytest.raises(ValueError, match="damaged golden vectors"):
        read_golden(whole + bytes(data.draw(st.integers(1, 99))), ins, outs)


@given(goldens(), st.data())
def test_a_changed_bit_is_found(
    case: tuple[Golden, list[TensorSpec], list[TensorSpec]], data: st.DataObject
) -> None:
    golden, ins, outs = case
    changed = bytearray(write_golden(golden, ins, outs))
    changed[data.draw(st.integers(0, len(changed) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(ValueError, match="damaged golden vectors"):
        read_golden(bytes(changed), ins, outs)


X, Y = TensorSpec("x", "uint8", (2,)), TensorSpec("y", "uint8", (3,))


@pytest.mark.parametrize(
    ("inputs", "outputs", "message"),
    [
        ({}, {"y": np.zeros((1, 3), np.uint8)}, "lack the input 'x'"),
        (
            {"x": np.zeros((1, 2), np.int8)},
            {"y": np.zeros((1, 3), np.uint8)},
            r"'x' is int8\(2,\) a sample; the package has uint8\(2,\)",
        ),
        (
            {"x": np.zeros((1, 2), np.uint8)},
            {"y": np.zeros((2, 3), np.uint8)},
            r"hold \[1, 2\] samples",
        ),
    ],
)
def test_vectors_that_do_not_fit_are_refused(
    inputs: dict[str, np.ndarray], outputs: dict[str, np.ndarray], message: str
) -> None:
    with pytest.raises(StageError, match=message):
        write_golden(Golden(inputs, outputs), (X,), (Y,))
