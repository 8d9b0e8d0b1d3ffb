"""Pictures as model inputs: read within limits, resized, cropped, and laid out as the input is."""

from __future__ import annotations

import contextlib
import json
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.errors import UserError, shown
from pipelines.recipe.picture_sizes import Size, pair, said
from pipelines.recipe.sections import CHANNELS, InputSpec
from stages.image_layout import Layout, fitting, layout

if TYPE_CHECKING:
    # Whether a recipe fits its model is checked in every build, which needs neither of these.
    import numpy as np
    from PIL.Image import Image

    Array = np.ndarray[Any, Any]

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp")
FORMATS = ("JPEG", "PNG", "BMP")
MAX_BYTES = 64 << 20
MAX_PIXELS = 1 << 26
"""Largest picture that is decoded, and largest one that resizing may give: 192 MiB as RGB."""

_MODES = ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK", "YCbCr")
"""Pillow's modes of at most 8 bits a channel."""


def is_picture(path: Path) -> bool:
    """Whether a file's name says that it is a picture."""
    return path.suffix.lower() in SUFFIXES


def read(path: Path, name: str, shape: Sequence[int], spec: InputSpec) -> Array:
    """Return a picture as uint8 in the shape of input `name`; UserError if it does not fit.

    It is turned as its EXIF data says, resized and cropped as `spec` says, and never stretched.
    """
    import numpy as np

    found = layout(shape)
    if found is None:
        raise UserError(
            f"{shown(path)} is a picture, and input '{name}' takes {list(shape)}, which holds "
            "none; give a .npy file"
        )
    color = spec.color or ("gray" if found.channels == 1 else "rgb")
    if CHANNELS[color] != found.channels:
        raise UserError(
            f"inputs.{name}.color is {color}, and the input takes {list(shape)}: "
            f"{found.channels} channel{'s' if found.channels > 1 else ''}"
        )
    with _guarded(path), _opened(path) as picture:
        pixels = np.asarray(_fitted(_converted(picture, color, path), spec, found, name, path))
    pixels = pixels.reshape(found.height, found.width, found.channels)
    if color == "bgr":
        pixels = pixels[..., ::-1]
    return np.ascontiguousarray(found.place(pixels)).reshape(tuple(shape))


@contextlib.contextmanager
def _guarded(path: Path) -> Iterator[None]:
    """Turn whatever Pillow raises about a file into a UserError."""
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            yield
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise _too_large(path, "more pixels than are decoded") from error
    except FileNotFoundError:
        raise UserError(f"{shown(path)}: there is no such file") from None
    except UserError:
        raise
    except Exception as error:
        # On damaged files Pillow's decoders raise OSError, SyntaxError, struct.error and more.
        reason = str(error).partition("\n")[0][:100]
        raise UserError(
            f"{shown(path)}: not a picture that can be read ({reason}); accepted: "
            f"{', '.join(FORMATS)}"
        ) from error


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Image]:
    """Give a picture whose header was read and found to be of a size that may be decoded."""
    from PIL import Image

    size = path.stat().st_size
    if size > MAX_BYTES:
        raise _too_large(path, f"{size:,} bytes; at most {MAX_BYTES:,} are read")
    with Image.open(path, formats=FORMATS) as picture:
        if picture.width * picture.height > MAX_PIXELS:
            raise _too_large(path, f"{picture.width} x {picture.height} pixels")
        yield picture


def _converted(picture: Image, color: str, path: Path) -> Image:
    from PIL import ImageOps

    if picture.mode not in _MODES:
        raise UserError(
            f"{shown(path)}: its pixels are of Pillow's mode {picture.mode}; accepted: 8 bits a "
            "channel, so save it as such"
        )
    picture = ImageOps.exif_transpose(picture)
    if picture.has_transparency_data:
        alpha = picture.convert("RGBA").getchannel("A")
        if alpha.getextrema()[0] != 255:
            raise UserError(
                f"{shown(path)}: has transparent pixels, which have no colour of their own; save "
                "it without transparency"
            )
    return picture.convert("L" if color == "gray" else "RGB")


def _fitted(picture: Image, spec: InputSpec, wanted: Layout, name: str, path: Path) -> Image:
    """Scale it, cut the middle out, and see that the size is what is wanted."""
    from PIL import Image

    if spec.resize is not None:
        width, height = _resized(picture.width, picture.height, spec.resize)
        if width * height > MAX_PIXELS:
            raise _too_large(path, f"{width} x {height} pixels when resized to {said(spec.resize)}")
        picture = picture.resize((width, height), Image.Resampling.BILINEAR)
    if spec.crop is not None:
        height, width = pair(spec.crop)
        if width > picture.width or height > picture.height:
            raise UserError(
                f"{shown(path)}: {picture.width} x {picture.height} pixels are fewer than "
                f"inputs.{name}.crop, {width} x {height}; {_advice(name, spec, wanted)}"
            )
        left, top = round((picture.width - width) / 2), round((picture.height - height) / 2)
        picture = picture.crop((left, top, left + width, top + height))
    if (picture.width, picture.height) != (wanted.width, wanted.height):
        comes = "comes to" if spec.resize or spec.crop else "has"
        raise UserError(
            f"{shown(path)}: {comes} {picture.width} x {picture.height} pixels, and input "
            f"'{name}' takes {wanted.width} x {wanted.height}; {_advice(name, spec, wanted)}"
        )
    return picture


def _advice(name: str, spec: InputSpec, wanted: Layout) -> str:
    """What to write into the recipe so that any picture fits; what it says already stays."""
    stated = spec.model_dump(mode="json", exclude_unset=True)
    fields = {key: json.dumps(value) for key, value in stated.items()}
    fields |= fitting(wanted.height, wanted.width)
    text = ", ".join(f"{key}: {value}" for key, value in fields.items())
    lines = ["inputs:", f"  {json.dumps(name)}: {{{text}}}"]
    return "\n".join(["for pictures of any size write in the recipe", *lines])


def _resized(width: int, height: int, wanted: Size) -> tuple[int, int]:
    """Return the size with its shorter side as wanted, or the least one that covers two sides.

    The other side is rounded down.
    """
    if isinstance(wanted, int):
        up, side = wanted, min(width, height)
    else:
        pairs = ((wanted[0], height), (wanted[1], width))
        up, side = max(pairs, key=lambda each: each[0] / each[1])
    return width * up // side, height * up // side


def _too_large(path: Path, what: str) -> UserError:
    return UserError(f"{shown(path)}: too large to be read as an input: {what}")
