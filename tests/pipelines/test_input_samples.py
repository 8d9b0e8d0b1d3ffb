"""Arrays as inputs, rankings, class names and labelled data."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pipelines.errors import UserError
from pipelines.evaluation import input_samples
from pipelines.recipe import class_names
from pipelines.recipe.sections import InputSpec
from pipelines.runners.package import Tensor

PIXELS = Tensor("x", "float32", (1, 3, 2, 2), None)


def test_samples_take_the_models_layout() -> None:
    first = np.arange(12, dtype=np.float32).reshape(3, 2, 2)
    for given in (first, first[None], np.moveaxis(first, 0, -1), first.reshape(-1)):
        np.testing.assert_array_equal(input_samples.prepare(given, PIXELS, None)[0], first)


def test_pixels_are_scaled_as_the_recipe_says() -> None:
    pixels = np.full((2, 2, 3), 255, np.uint8)
    spec = InputSpec(mean=(0.0, 0.5, 1.0), std=(1.0, 0.5, 2.0))
    found = input_samples.prepare(pixels, PIXELS, spec)
    np.testing.assert_allclose(found[0, :, 0, 0], [1.0, 1.0, 0.0], atol=1e-6)
    unscaled = input_samples.prepare(pixels, PIXELS, InputSpec(scale=1.0))
    assert unscaled.max() == 255.0


def test_every_pixel_is_the_float32_that_a_division_by_255_gives() -> None:
    pixels = np.arange(256, dtype=np.uint8)
    found = input_samples.prepare(pixels, Tensor("x", "float32", (1, 256), None), None)
    np.testing.assert_array_equal(found[0], pixels.astype(np.float32) / np.float32(255))


def test_channels_are_normalized_along_their_axis_wherever_it_stands() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (5, 4, 3)).astype(np.uint8)
    spec = InputSpec(mean=(0.1, 0.2, 0.3), std=(0.5, 0.25, 2.0))
    first = input_samples.prepare(pixels, Tensor("x", "float32", (1, 3, 5, 4), None), spec)
    last = input_samples.prepare(pixels, Tensor("x", "float32", (1, 5, 4, 3), None), spec)
    np.testing.assert_array_equal(first, np.moveaxis(last, -1, 1))
    mean, std = np.array(spec.mean, np.float32), np.array(spec.std, np.float32)
    wanted = (pixels.astype(np.float32) / np.float32(255) - mean) / std
    np.testing.assert_array_equal(last[0], wanted)


def test_an_integer_input_takes_nothing_it_would_change() -> None:
    tensor = Tensor("x", "int8", (2,), None)
    with pytest.raises(UserError, match="takes int8"):
        input_samples.prepare(np.array([300, 1]), tensor, None)
    assert input_samples.prepare(np.array([-3.0, 1.0]), tensor, None).tolist() == [-3, 1]
    with pytest.raises(UserError, match=r"inputs\.x\.mean is for float inputs, and this one"):
        input_samples.prepare(np.array([3, 1]), tensor, InputSpec(mean=(0.5,)))


def stored(dtype: str, scale: float, zero_point: int) -> Tensor:
    return Tensor("x", dtype, (1, 2, 2, 3), {"scale": scale, "zero_point": zero_point})


PICTURE = np.random.default_rng(0).integers(0, 256, (2, 2, 3)).astype(np.uint8)


@pytest.mark.parametrize(
    ("scale", "zero_point"), [(1 / 128, 0), (1 / 127.5, -1), (1 / 255, -128), (1.0, -128)]
)
def test_pixels_go_into_int8_less_128(scale: float, zero_point: int) -> None:
    found = input_samples.prepare(PICTURE, stored("int8", scale, zero_point), None)
    assert found.dtype == np.int8
    np.testing.assert_array_equal(found[0].astype(np.int16), PICTURE.astype(np.int16) - 128)


def test_pixels_go_into_uint8_as_they_are() -> None:
    found = input_samples.prepare(PICTURE, stored("uint8", 1 / 128, 128), None)
    np.testing.assert_array_equal(found[0], PICTURE)


def test_what_the_recipe_says_of_pixels_is_quantized() -> None:
    """Said out loud, the preprocessing of a network trained on -1 to 1 is the same as the guess."""
    spec = InputSpec(scale=1 / 128, mean=(1.0,))
    for dtype, zero_point in (("int8", 0), ("uint8", 128)):
        tensor = stored(dtype, 1 / 128, zero_point)
        np.testing.assert_array_equal(
            input_samples.prepare(PICTURE, tensor, spec),
            input_samples.prepare(PICTURE, tensor, None),
        )
    halves = input_samples.prepare(PICTURE, stored("uint8", 2.0, 0), InputSpec(scale=1.0))
    np.testing.assert_array_equal(halves[0], (PICTURE.astype(int) + 1) // 2)


def test_an_int8_input_of_another_scale_wants_to_be_told() -> None:
    with pytest.raises(UserError, match=r"does not tell how pixels become it; state inputs\.x\."):
        input_samples.prepare(PICTURE, stored("int8", 0.58, 83), None)


def test_stored_integers_stay_and_real_values_are_quantized() -> None:
    tensor = Tensor("x", "int8", (4,), {"scale": 0.5, "zero_point": 3})
    kept = np.array([-128, -1, 0, 127], np.int8)
    spec = InputSpec(scale=1.0)
    np.testing.assert_array_equal(input_samples.prepare(kept, tensor, spec), kept)
    np.testing.assert_array_equal(input_samples.prepare(kept.astype(np.int64), tensor, None), kept)
    real = np.array([0.0, 0.25, -0.25, 1e9])
    assert input_samples.prepare(real, tensor, None).tolist() == [3, 4, 2, 127]


def test_stored_outputs_are_ranked_and_shown_as_real_values() -> None:
    tensor = Tensor("y", "uint8", (1, 3), {"scale": 0.25, "zero_point": 4})
    output = np.array([[4, 255, 0]], np.uint8)
    assert input_samples.ranking(output, 2, tensor) == [1, 0]
    assert input_samples.real_values(output, tensor).tolist() == [[0.0, 62.75, -1.0]]
    one = np.array([[200]], np.uint8)
    assert input_samples.is_class(one) and not input_samples.is_class(one, tensor)
    assert input_samples.ranking(one, 1, tensor) == [0]


@pytest.mark.parametrize(
    ("array", "spec", "message"),
    [
        (np.zeros((4, 4)), None, "input 'x' takes [1, 3, 2, 2], found [4, 4]; axes of length 1 "
                                 "may be left out and channels may stand last"),
        (np.zeros((3, 2, 2), complex), None, "input 'x' takes float32, found complex128 values"),
        (np.zeros((3, 2, 2), np.uint8), InputSpec(mean=(0.1, 0.2)),
         "inputs.x: mean and std have 2 channels, and the input [1, 3, 2, 2] has not"),
    ],
)  # fmt: skip
def test_arrays_that_do_not_fit(array: np.ndarray, spec: InputSpec | None, message: str) -> None:
    with pytest.raises(UserError) as error:
        input_samples.prepare(array, PIXELS, spec)
    assert error.value.message == message


def test_one_file_may_hold_every_input(tmp_path: Path) -> None:
    a, b = (Tensor(name, "float32", (1, 2), None) for name in "ab")
    path = tmp_path / "in.npz"
    np.savez(path, a=np.ones(2, np.float32), b=np.zeros(2, np.float32))
    found = input_samples.read_inputs(path, (a, b), {})
    assert {name: array.tolist() for name, array in found.items()} == {
        "a": [[1.0, 1.0]],
        "b": [[0.0, 0.0]],
    }
    with pytest.raises(UserError, match=r"holds the arrays a, b; the inputs are a$"):
        input_samples.read_inputs(path, (a,), {})
    with pytest.raises(UserError, match=r"has 2 inputs \(a float32\[1, 2\], b .*give a \.npz"):
        input_samples.read_inputs(tmp_path / "in.npy", (a, b), {})
    np.savez(path, anything=np.ones(2, np.float32))
    assert input_samples.read_inputs(path, (a,), {})["a"].tolist() == [[1.0, 1.0]]


def test_a_picture_is_scaled_like_an_array(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (2, 2, 3)).astype(np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    np.save(tmp_path / "a.npy", pixels)
    spec = {"x": InputSpec(mean=(0.1, 0.2, 0.3))}
    found = [
        input_samples.read_inputs(tmp_path / name, (PIXELS,), spec) for name in ("a.png", "a.npy")
    ]
    np.testing.assert_array_equal(found[0]["x"], found[1]["x"])


def npy(header: str) -> bytes:
    """A .npy file of a header and eight bytes."""
    return b"\x93NUMPY\x01\x00\x76\x00" + f"{{{header}}}".ljust(117).encode() + b"\n" + bytes(8)


@pytest.mark.parametrize("name", ["a.npy", "a.npz"])
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"PK\x03\x04rubbish",
        npy("'descr': '|O', 'fortran_order': False, 'shape': (1,)"),
        # Claims 2^50 numbers that are not there.
        npy("'descr': '<f8', 'fortran_order': False, 'shape': (1125899906842624,)"),
    ],
)  # fmt: skip
def test_damaged_arrays_are_refused(tmp_path: Path, name: str, data: bytes) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(UserError, match=r"a\.np[yz]: (not a \.np[yz] file|its arrays do not fit)"):
        input_samples.read_inputs(tmp_path / name, (PIXELS,), {})


def test_an_archive_with_a_broken_stream_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez_compressed(path, x=np.zeros(4096, np.float32))
    whole = bytearray(path.read_bytes())
    at = whole.index(b"x.npy") + len("x.npy")
    whole[at + 24 : at + 40] = b"\xff" * 16
    path.write_bytes(whole)
    with pytest.raises(UserError, match=r"not a \.npz file of plain arrays"):
        input_samples.read_inputs(path, (PIXELS,), {})


def test_an_archive_named_npy_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros(2))
    (tmp_path / "a.npz").rename(tmp_path / "a.npy")
    with pytest.raises(UserError, match=r"not a \.npy file of plain numbers"):
        input_samples.read_inputs(tmp_path / "a.npy", (PIXELS,), {})


def test_rankings_are_stable_and_a_class_ranks_itself() -> None:
    assert input_samples.ranking(np.array([[1, 3, 3, 2]], np.float32), 3) == [1, 2, 3]
    assert input_samples.ranking(np.array([[7]], np.int64), 5) == [7]


def test_class_names(tmp_path: Path) -> None:
    path = tmp_path / "names.txt"
    path.write_text("tench\ngoldfish \n")
    assert class_names.read(path, 2) == ["tench", "goldfish"]
    with pytest.raises(UserError, match=r"has 2 lines, and the output has 3 classes; give one"):
        class_names.read(path, 3)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match=r"is not a UTF-8 text file"):
        class_names.read(path)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("values", "tensor", "spec", "says"),
    [
        ([0.5, np.nan], Tensor("x", "float32", (2,), None), None, "takes numbers; 1 of the 2 val"),
        ([np.nan, np.nan], Tensor("x", "int8", (2,), None), None, "2 of the 2 values found are N"),
        (
            [1, np.nan],
            Tensor("x", "int8", (2,), {"scale": 0.1, "zero_point": 0}),
            None,
            "NaN, the first at 1, counted from 0",
        ),
        ([0, np.inf], Tensor("x", "int8", (2,), None), None, r"\(0 to inf\) would be changed"),
        ([0, 1e300], Tensor("x", "float32", (2,), None), None, r"\(0 to 1e\+300\) would be ch"),
        (np.array([1, 2]), Tensor("x", "float32", (2,), None), InputSpec(scale=3e38), "make of th"),
        (np.array([1, 2]), Tensor("x", "float32", (2,), None), InputSpec(mean=(1e39,)), "make of"),
        (np.array([1, 2]), Tensor("x", "float32", (2,), None), InputSpec(std=(1e-60,)), "make of"),
    ],
)
def test_what_no_input_can_hold_is_one_sentence(
    values: list[float], tensor: Tensor, spec: InputSpec | None, says: str
) -> None:
    with pytest.raises(UserError, match=says):
        input_samples.prepare(np.asarray(values), tensor, spec)


@pytest.mark.filterwarnings("error")
def test_infinite_values_stay_where_a_type_has_them() -> None:
    """As masks have them; of stored integers they are the last level."""
    given, meaning = np.array([-np.inf, 1.0]), {"scale": 0.1, "zero_point": 0}
    found = input_samples.prepare(given, Tensor("x", "float32", (2,), None), None)
    np.testing.assert_array_equal(found, given)
    assert input_samples.prepare(given, Tensor("x", "int8", (2,), meaning), None).tolist() == [
        -128,
        10,
    ]
