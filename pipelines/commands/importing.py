"""`doit import FILE`: what a model file contains, what is unsupported, and a starter recipe."""

from __future__ import annotations

import itertools
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pipelines import paths, work_folder
from pipelines.errors import UserError, shown
from pipelines.output import printed_tables
from pipelines.recipe import model_files
from pipelines.recipe.overrides import Variables
from pipelines.store import atomic


def run(*, variables: Variables, files: Sequence[str]) -> None:
    """Print the file's contents and write recipes/<name>.yaml unless there is one."""
    path = _path(variables, files)
    source = _read(path)
    description = described(source)
    _tell(path, description)
    target = work_folder.RECIPES / f"{recipe_name(path)}.yaml"
    _write(target, description, _as_stated(path, target.parent))
    for line in _next(target.stem, description):
        print(f"next: {line}")
    printed_tables.write_json(variables.command.get("json"), {**description, "recipe": target.stem})


def described(source: bytes) -> dict[str, Any]:
    """Return what a model file contains and, if it is supported, what its model does."""
    from stages import importing  # takes seconds, so only once there is something to read
    from stages.options import GoldenOptions, ImportOptions

    description = importing.describe(source=source)
    if description["unsupported"]:
        return dict(description)
    model = importing.run(source=source, options=ImportOptions())
    moved = importing.output_tolerance(source=source, model=model, options=GoldenOptions())
    return description | {
        "numerics": importing.numerics(model),
        "islands": importing.islands(model),
        "ends": importing.boundary_operators(model),
        "moved_by_last_bits": moved,
    }


def _write(target: Path, description: dict[str, Any], stated: str) -> None:
    """Write the recipe, and files of labels beside it, unless there is a recipe of that name."""
    from stages import importing

    if os.path.lexists(target):
        print(f"kept: {shown(target)} is there already")
        return
    labels = {
        item["name"]: _write_labels(target, item["labels"])
        for item in description["outputs"]
        if _has_labels(item)
    }
    _write_text(target, importing.starter_recipe(description, stated, target.stem, labels))


def _write_labels(target: Path, names: Sequence[str]) -> str:
    """Write a file of labels beside the recipe; its name. No other file is written over."""
    text = "".join(f"{name}\n" for name in names)
    for number in itertools.count(1):
        path = target.with_name(f"{target.stem}_labels{number if number > 1 else ''}.txt")
        if not os.path.lexists(path):
            _write_text(path, text)
            return path.name
        if path.is_file() and path.read_bytes() == text.encode():
            return path.name
    raise AssertionError


def _write_text(path: Path, text: str) -> None:
    try:
        atomic.replace(path, text.encode())
    except OSError as error:
        raise UserError(f"{shown(path)}: cannot write it: {error.strerror}") from error
    print(f"written: {shown(path)}")


def _has_labels(item: Mapping[str, Any]) -> bool:
    """Whether a file's metadata name each class of an output."""
    shape, names = item["shape"], item.get("labels")
    if not names or not shape or None in shape:
        return False
    return math.prod(shape) == len(names)


def _next(name: str, description: dict[str, Any]) -> Iterator[str]:
    """The commands that one gives next."""
    from stages import importing

    if not description["unsupported"]:
        yield f"doit build recipe={name}"
        if importing.takes_images(description):
            yield f"doit run recipe={name} input=photo.jpg"


def recipe_name(path: Path) -> str:
    """Return the recipe's name for a model file: its stem as a C identifier can be."""
    words = re.sub(r"[^a-z0-9]+", "_", model_files.stem(path).lower()).strip("_")
    return words if words[:1].isalpha() else f"model_{words}".rstrip("_")


def _path(variables: Variables, files: Sequence[str]) -> Path:
    given = [*files, *filter(None, [variables.command.get("file")])]
    if len(given) != 1:
        found = f"found {len(given)}: {', '.join(given)}" if given else "found none"
        raise UserError(f"import takes one model file, {found}; for example: doit import net.onnx")
    return paths.expanded(given[0]).absolute()


def _read(path: Path) -> bytes:
    if not model_files.is_accepted(path):
        accepted = ", ".join(f"{ending} ({what})" for ending, what in model_files.ENDINGS.items())
        raise UserError(
            f"{shown(path)}: '{path.suffix or path.name}' is not accepted; accepted: {accepted}"
        )
    return model_files.read(path)


def _as_stated(path: Path, folder: Path) -> str:
    """Return a path as the recipe states it: relative inside the work folder, whole outside."""
    inside = path.is_relative_to(work_folder.WORK)
    return Path(os.path.relpath(path, folder)).as_posix() if inside else path.as_posix()


def _tell(path: Path, found: dict[str, Any]) -> None:
    word = "opset" if "ONNX" in found["format"] else "version"
    version = f", {word} {found['opset']}" if found.get("opset") else ""
    rules = f", {found['numerics']} numerics" if found.get("numerics") else ""
    by = f", written by {found['producer']}" if found["producer"] else ""
    print(f"{shown(path)}: {found['format']}{version}{rules}{by}")
    print(f"  {found['parameters']:,} parameters in {found['bytes']:,} bytes")
    printed_tables.show(
        "inputs", [_tensor(item) for item in found["inputs"]], _columns(found["inputs"])
    )
    printed_tables.show(
        "outputs", [_tensor(item) for item in found["outputs"]], _columns(found["outputs"])
    )
    layers = [
        {**layer, **{name: _precision(layer[name]) for name in ("activations", "weights")}}
        for layer in found["layers"]
    ]
    columns = ["layer", "op", "weight_shape", "activations", "weights"]
    printed_tables.show(f"layers ({len(layers)})", layers, columns)
    counts = [{"operator": name, "count": n} for name, n in found["operators"].items()]
    printed_tables.show("operators", counts, ["operator", "count"])
    for item in found["left_to_caller"]:
        print(f"left to the caller: {item['op']} ({item['layer']}) at the end; it is not packaged")
    islands = [_island(item) for item in found.get("islands", ())]
    if islands:
        from stages.numerics.onnx_islands import RUNTIME

        columns = ["layers", "such_as", "a_package_gives", "it_makes_of_them"]
        printed_tables.show(f"what the default session of {RUNTIME} fuses", islands, columns)
    if found.get("moved_by_last_bits") is not None:
        print(
            "a package is close to the framework, not equal: on the golden inputs the last bits of "
            f"float sums move outputs by up to {found['moved_by_last_bits']:.3g}"
        )
    rows = [{**item, "layers": ", ".join(item["layers"])} for item in found["unsupported"]]
    if rows:
        printed_tables.show(f"NOT SUPPORTED ({len(rows)})", rows, ["op", "why", "layers"])
        print("a build of this file stops at these")
    else:
        rest = "else " if found["left_to_caller"] else ""
        print(f"everything {rest}in it is supported")


def _tensor(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row of an input or output, with what its stored numbers mean."""
    if "scale" not in item:
        return dict(item)
    zero_point = item["zero_point"]
    sign = "+" if zero_point < 0 else "-"
    return {**item, "real_value": f"{item['scale']:.9g} * (q {sign} {abs(zero_point):g})"}


def _island(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row of a kind of islands."""
    return {
        "layers": len(item["layers"]),
        "such_as": item["layers"][0],
        "a_package_gives": f"the results of {item['gives']}",
        "it_makes_of_them": item["runtime"],
    }


def _columns(items: Sequence[Mapping[str, Any]]) -> list[str]:
    columns = ["name", *(["dtype"] if any("dtype" in item for item in items) else []), "shape"]
    return columns + (["real_value"] if any("scale" in item for item in items) else [])


def _precision(found: dict[str, Any] | None) -> str:
    return f"{found['bits']}-bit {found['encoding']}" if found else "float"
