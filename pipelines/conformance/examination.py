"""What is found out about one model file, by a process of its own (`examiner_process.py`)."""

from __future__ import annotations

import ctypes
import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.conformance import row_verdicts, steps
from pipelines.errors import UserError
from pipelines.recipe import model_files
from pipelines.reference_runtimes import runtime
from stages import importing
from stages.errors import StageError
from stages.graph import interpret
from stages.graph.builder import ModelBuilder
from stages.image_layout import Layout
from stages.image_layout import layout as layout_of
from stages.importing import closeness
from stages.importing.formats import format_of
from stages.kinds import Golden, Model
from stages.numerics.onnx_islands import CLOSE, UNOPTIMIZED
from stages.options import ImportOptions

Array = np.ndarray[Any, Any]
Row = dict[str, Any]

SEED = 0
_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"


def examine_file(
    path: Path, samples: int, shown: Sequence[Path], packages: bool, begin: Callable[[str], None]
) -> Row:
    """Return all that the table says of a model file; `shown` are pictures to show to it,
    and `begin` is told each step.

    `status` is exact, close (float outputs that differ by rounding alone), differs, alone (there
    is no runtime to compare with here), refused (something in it is not supported) or damaged.
    """
    row: Row = {"status": "damaged"}
    begin(steps.IMPORTING)
    try:
        source = model_files.read(path)
        row |= {"bytes": len(source)}
        _warm_up(source)
        with _measured(row):
            model = importing.run(source=source, options=ImportOptions())
    except (StageError, UserError) as error:
        return row | {"why": str(error)} | _described(path)
    row |= _described(path) | {"numerics": importing.numerics(model)}
    row["islands"] = importing.islands(model)
    given = _inputs(source, model, samples, shown)
    row |= {"samples": len(given)}
    begin(steps.REFERENCE)
    golden = _of_reference(row, source, model, given)
    begin(steps.EXECUTING)
    if golden is not None:
        row |= row_verdicts.compared(golden, lambda sample: interpret.run(model, sample))
        _say_what_is_followed(row, source, model, given)
    if packages:
        from pipelines.conformance import package_check

        begin(steps.BUILDING)
        if golden is None:
            outputs = [interpret.run(model, sample) for sample in given]
            golden = row_verdicts.golden(given, outputs)
        row["package"] = package_check.check_package(path, golden)
    return row


def _say_what_is_followed(
    row: Row, source: bytes, model: Model, given: list[dict[str, Array]]
) -> None:
    """Note how far the runtime's default is where it is not followed, and what last bits may do.

    Outputs that differ by no more than last bits of float sums move them are close.
    """
    gives = {island["gives"] for island in row["islands"]}
    if UNOPTIMIZED in gives:
        shape = runtime.Shape(*importing.signature(model))
        with suppress(runtime.RefusedError):
            reference = runtime.open_runtime(
                importing.numerics(model), source, shape, is_default=True
            )
            golden = row_verdicts.golden(given, [reference.run(sample) for sample in given])
            found = row_verdicts.compared(golden, lambda sample: interpret.run(model, sample))
            row["from_default"] = found
    if CLOSE in gives:
        row["moved_by_last_bits"] = max(closeness.output_tolerances(model, given).values())
        if row["status"] == "differs" and _largest(row) <= row["moved_by_last_bits"]:
            row["status"] = "close"


def _largest(row: Row) -> float:
    return max(row.get("steps", 0.0), row.get("difference", 0.0))


def _described(path: Path) -> Row:
    """Return what importing says of a file whether it is supported or not; nothing if damaged."""
    try:
        found = importing.describe(source=model_files.read(path))
    except (StageError, UserError):
        return {}
    keys = ("format", "operators", "parameters", "unsupported", "inputs", "outputs")
    row = {key: found[key] for key in keys}
    return row | ({"status": "refused"} if found["unsupported"] else {})


def _warm_up(source: bytes) -> None:
    """Load what importing loads on its first use, so that the file's own time is measured."""
    builder = ModelBuilder()
    builder.model([builder.emit(builder.input("x", [1], "float32"), "y")], ["y"])
    format_of(source).load()


@contextmanager
def _measured(row: Row) -> Iterator[None]:
    """Note the seconds, and by how many bytes the resident memory grew at most."""
    gc.collect()
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)  # what was freed before shall not be taken unseen
        _CLEAR.write_text(_RESET_PEAK)
    before, started = _resident("VmRSS"), time.perf_counter()
    try:
        yield
    finally:
        row["import_seconds"] = round(time.perf_counter() - started, 3)
        after = _resident("VmHWM")
        row["import_bytes"] = None if before is None or after is None else max(0, after - before)


def _resident(field: str) -> int | None:
    with suppress(OSError):
        for line in _STATUS.read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(":")
            if name == field:
                return int(value.split()[0]) * 1024
    return None


def _inputs(
    source: bytes, model: Model, samples: int, shown: Sequence[Path]
) -> list[dict[str, Array]]:
    """Return seeded inputs, the smallest and largest ones first, and pictures where they fit."""
    given = importing.inputs(source=source, model=model, seed=SEED, count=samples)
    for index, extreme in enumerate((np.min, np.max)):
        if index < len(given) - 1:
            given[index] = {n: np.full_like(v, extreme(v)) for n, v in given[index].items()}
    if len(given[0]) == 1:
        ((name, first),) = given[0].items()
        layout = layout_of(first.shape)
        if first.ndim == 4 and layout is not None:
            given += [{name: _pixels(path, layout, given[-1][name])} for path in shown]
    return given


def _pixels(path: Path, layout: Layout, like: Array) -> Array:
    """Return a picture in an input's size and type.

    Bytes stay bytes, less 128 for int8; floats are 0 to 1 unless the input takes whole numbers.
    """
    from PIL import Image

    with Image.open(path) as picture:
        fitted = picture.convert("L" if layout.channels == 1 else "RGB").resize(
            (layout.width, layout.height), Image.Resampling.BILINEAR
        )
    pixels = np.asarray(fitted).reshape(layout.height, layout.width, layout.channels)
    if like.dtype.kind == "f":
        takes_whole = bool((like == np.rint(like)).all() and like.max() > 1)
        values = (pixels if takes_whole else pixels / 255).astype(like.dtype)
    else:
        values = (pixels.astype(np.int64) + min(0, np.iinfo(like.dtype).min)).astype(like.dtype)
        if like.dtype.itemsize > 1:
            values = pixels.astype(like.dtype)
    return np.ascontiguousarray(layout.place(values)).reshape(like.shape)


def _of_reference(
    row: Row, source: bytes, model: Model, given: list[dict[str, Array]]
) -> Golden | None:
    """Return what the framework's own runtime gives; None, and why, if it cannot be asked."""
    shape = runtime.Shape(*importing.signature(model))
    try:
        reference = runtime.open_runtime(importing.numerics(model), source, shape)
        row["peer"] = reference.name
        return row_verdicts.golden(given, [reference.run(sample) for sample in given])
    except (runtime.MissingError, runtime.RefusedError) as error:
        row |= {"status": "alone", "why": str(error)}
        return None
