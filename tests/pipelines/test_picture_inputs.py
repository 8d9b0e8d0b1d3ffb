"""Pictures as inputs: colour, resizing, cropping and layout, and what is refused."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from pipelines.errors import UserError
from pipelines.evaluation import picture_inputs
from pipelines.recipe.sections import InputSpec
from stages.image_layout import Layout
from stages.image_layout import layout as layout_of

RED, GREEN, BLUE = (255, 0, 0), (0, 255, 0), (0, 0, 255)


def saved(folder: Path, pixels: np.ndarray, name: str = "a.png") -> Path:
    path = folder / name
    Image.fromarray(pixels).save(path)
    return path


def stripes(height: int, width: int) -> np.ndarray:
    """Red, green and blue from left to right."""
    pixels = np.zeros((height, width, 3), np.uint8)
    for column in range(width):
        pixels[:, column] = (RED, GREEN, BLUE)[3 * column // width]
    return pixels


@pytest.mark.parametrize(
    ("shape", "layout"),
    [
        ((1, 3, 224, 200), Layout(3, 224, 200, False)),
        ((1, 224, 200, 3), Layout(3, 224, 200, True)),
        ((3, 8, 8), Layout(3, 8, 8, False)),
        ((1, 1, 28, 27), Layout(1, 28, 27, False)),
        ((1, 28, 27, 1), Layout(1, 28, 27, True)),
        ((1, 784), Layout(1, 28, 28, False)),
        ((1, 600), None),
        ((1, 4, 8, 8), None),
        ((2, 3, 8, 8), None),
    ],
)
def test_layouts(shape: tuple[int, ...], layout: Layout | None) -> None:
    assert layout_of(shape) == layout


@given(st.integers(2, 9), st.integers(2, 9), st.sampled_from(["rgb", "bgr"]), st.booleans())
def test_a_picture_of_the_inputs_size_is_its_pixels(
    height: int, width: int, color: str, is_last: bool
) -> None:
    import tempfile

    pixels = np.random.default_rng(height).integers(0, 256, (height, width, 3)).astype(np.uint8)
    shape = (1, height, width, 3) if is_last else (1, 3, height, width)
    if not is_last or height != 3:  # [1, 3, w, 3] is read with its channels first
        with tempfile.TemporaryDirectory() as folder:
            path = saved(Path(folder), pixels)
            found = picture_inputs.read(
                path, "x", shape, InputSpec.model_validate({"color": color})
            )
        wanted = pixels if color == "rgb" else pixels[..., ::-1]
        np.testing.assert_array_equal(found[0], wanted if is_last else np.moveaxis(wanted, -1, 0))


def test_the_shorter_side_is_resized_and_the_middle_cut(tmp_path: Path) -> None:
    path = saved(tmp_path, stripes(20, 60))
    found = picture_inputs.read(path, "x", (1, 3, 8, 8), InputSpec(resize=10, crop=8))
    assert found.shape == (1, 3, 8, 8) and found.dtype == np.uint8
    assert (found[0, 1] == 255).all() and (found[0, [0, 2]] == 0).all()  # the green third
    left = picture_inputs.read(path, "x", (1, 3, 10, 30), InputSpec(resize=10))
    assert (left[0, 0, :, 0] == 255).all() and (left[0, 2, :, -1] == 255).all()


@given(*[st.integers(1, 60)] * 4)
def test_a_picture_of_any_size_covers_what_is_wanted(
    width: int, height: int, across: int, down: int
) -> None:
    """The smallest size of the picture's shape: the other side would be a pixel too short."""
    wide, tall = picture_inputs._resized(width, height, (down, across))
    assert wide >= across and tall >= down and (wide == across or tall == down)
    assert abs(wide * height - tall * width) < max(width, height)
    shorter = picture_inputs._resized(width, height, down)
    assert shorter == picture_inputs._resized(width, height, (down, down))


def test_inputs_that_are_no_square(tmp_path: Path) -> None:
    path = saved(tmp_path, stripes(20, 60))
    spec = InputSpec.model_validate({"resize": [10, 10], "crop": [10, 8]})
    found = picture_inputs.read(path, "x", (1, 10, 8, 3), spec)
    assert found.shape == (1, 10, 8, 3) and (found[..., 1] == 255).all()  # the green third
    upright = saved(tmp_path, stripes(60, 20), "b.png")
    spec = InputSpec.model_validate({"resize": [6, 30], "crop": [6, 30]})
    found = picture_inputs.read(upright, "x", (1, 3, 6, 30), spec)
    assert (found[0, 0, :, 0] == 255).all() and (found[0, 2, :, -1] == 255).all()


def test_gray_and_colour_become_what_the_input_takes(tmp_path: Path) -> None:
    gray = saved(tmp_path, np.full((4, 4), 77, np.uint8))
    assert (picture_inputs.read(gray, "x", (1, 3, 4, 4), InputSpec()) == 77).all()
    green = saved(tmp_path, np.full((4, 4, 3), GREEN, np.uint8), "b.bmp")
    luma = picture_inputs.read(green, "x", (1, 16), InputSpec())
    assert luma.shape == (1, 16) and (luma == 150).all()  # 0.587 of 255, ITU-R 601


def test_a_photograph_is_turned_as_its_exif_data_says(tmp_path: Path) -> None:
    picture = Image.fromarray(stripes(30, 60))
    exif = picture.getexif()
    exif[0x0112] = 6  # a quarter turn clockwise
    picture.save(tmp_path / "a.jpg", exif=exif, quality=95)
    found = picture_inputs.read(tmp_path / "a.jpg", "x", (1, 3, 60, 30), InputSpec())
    assert found[0, 0, 5].min() > 200 and found[0, 2, -5].min() > 200  # red above, blue below


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    path = saved(tmp_path, stripes(20, 60))

    def refusal(shape: tuple[int, ...], **fields: object) -> str:
        with pytest.raises(UserError) as error:
            picture_inputs.read(path, "x", shape, InputSpec.model_validate(fields))
        return error.value.message.removeprefix(f"{path}: ").removeprefix(f"{path} ")

    assert refusal((1, 3, 8, 8)) == (
        "has 60 x 20 pixels, and input 'x' takes 8 x 8; for pictures of any size write in the "
        'recipe\ninputs:\n  "x": {resize: 8, crop: 8}'
    )
    assert refusal((1, 3, 8, 8), resize=8) == (
        "comes to 24 x 8 pixels, and input 'x' takes 8 x 8; for pictures of any size write in the "
        'recipe\ninputs:\n  "x": {resize: 8, crop: 8}'
    )
    assert refusal((1, 3, 24, 24), crop=24) == (
        "60 x 20 pixels are fewer than inputs.x.crop, 24 x 24; for pictures of any size write in "
        'the recipe\ninputs:\n  "x": {crop: 24, resize: 24}'
    )
    assert refusal((1, 3, 8, 8), color="gray") == (
        "inputs.x.color is gray, and the input takes [1, 3, 8, 8]: 3 channels"
    )
    assert refusal((1, 7)) == (
        "is a picture, and input 'x' takes [1, 7], which holds none; give a .npy file"
    )


def png_claiming(width: int, height: int) -> bytes:
    """A PNG whose header says so, and whose pixels are not there."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b""))


@pytest.mark.parametrize("side", [8193, 10_000, 60_000])
def test_bombs_are_not_decoded(tmp_path: Path, side: int) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(png_claiming(side, side))
    with pytest.raises(UserError, match=r"a\.png: too large to be read as an input"):
        picture_inputs.read(path, "x", (1, 3, 8, 8), InputSpec(resize=8, crop=8))


def test_a_long_thin_picture_does_not_grow_beyond_the_limit(tmp_path: Path) -> None:
    path = saved(tmp_path, np.zeros((1, 60_000, 3), np.uint8))
    with pytest.raises(UserError, match="15360000 x 256 pixels when resized to 256"):
        picture_inputs.read(path, "x", (1, 3, 224, 224), InputSpec(resize=256, crop=224))


def test_a_file_too_large_is_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(tmp_path, stripes(4, 4))
    monkeypatch.setattr(picture_inputs, "MAX_BYTES", 10)
    with pytest.raises(UserError, match="at most 10 are read"):
        picture_inputs.read(path, "x", (1, 3, 4, 4), InputSpec())


@pytest.mark.parametrize("data", [b"", b"GIF89a", b"\x89PNG\r\n\x1a\nrubbish", png_claiming(4, 4)])
def test_damaged_files_are_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(data)
    with pytest.raises(UserError, match=r"not a picture that can be read .*accepted: JPEG, PNG"):
        picture_inputs.read(path, "x", (1, 3, 4, 4), InputSpec())


@given(st.data())
def test_no_flipped_byte_ends_in_a_traceback(data: st.DataObject) -> None:
    import io
    import tempfile

    kind = data.draw(st.sampled_from(["PNG", "JPEG", "BMP"]))
    buffer = io.BytesIO()
    Image.fromarray(stripes(6, 9)).save(buffer, kind)
    content = bytearray(buffer.getvalue())
    for _ in range(3):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.png"
        path.write_bytes(content)
        try:
            found = picture_inputs.read(path, "x", (1, 3, 4, 4), InputSpec(resize=5, crop=4))
        except UserError:
            return
        assert found.shape == (1, 3, 4, 4)


def test_transparency_and_deep_pixels_are_refused(tmp_path: Path) -> None:
    pixels = np.zeros((4, 4, 4), np.uint8)
    with pytest.raises(UserError, match="has transparent pixels"):
        picture_inputs.read(saved(tmp_path, pixels), "x", (1, 3, 4, 4), InputSpec())
    pixels[..., 3] = 255
    assert not picture_inputs.read(saved(tmp_path, pixels), "x", (1, 3, 4, 4), InputSpec()).any()
    deep = saved(tmp_path, np.zeros((4, 4), np.uint16), "deep.png")
    with pytest.raises(UserError, match="8 bits a channel, so save it as such"):
        picture_inputs.read(deep, "x", (1, 1, 4, 4), InputSpec())


def test_a_picture_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"none\.jpg: there is no such file"):
        picture_inputs.read(tmp_path / "none.jpg", "x", (1, 3, 4, 4), InputSpec())
