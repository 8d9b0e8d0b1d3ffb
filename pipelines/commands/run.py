"""`doit run`: one input through the package, and what it says."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.builds import opened_package
from pipelines.builds.plan import Plan
from pipelines.commands import arguments
from pipelines.errors import UserError, shown
from pipelines.evaluation import input_samples, layer_times
from pipelines.output import out_files, printed_tables
from pipelines.recipe import class_names
from pipelines.recipe.overrides import Variables
from pipelines.recipe.resolved import Resolved
from pipelines.recipe.sections import OutputSpec
from pipelines.remote.transport import Transport, reached
from pipelines.runners.package import Tensor

_BEST = 5


def run(*, plan: Plan, resolved: Resolved, variables: Variables) -> None:
    """Print the best classes of every output; out=FILE.npz keeps the outputs whole."""
    path = arguments.required_path(
        variables, "input", f"doit run {resolved.arguments()} input=FILE"
    )
    threads = arguments.threads(variables) or 1
    specs = resolved.recipe.outputs
    with opened_package.opened(plan, one_board(variables, resolved)) as opened:
        inputs = input_samples.read_inputs(path, opened.package.inputs, resolved.recipe.inputs)
        outputs = opened.run(inputs, threads)
        tensors = {tensor.name: tensor for tensor in opened.package.outputs}
        taken = ", ".join(str(tensor) for tensor in opened.package.inputs)
        print(f"{resolved.name}, {opened.how}: {taken} from {shown(path.absolute())}")
    result: dict[str, Any] = {"recipe": resolved.name, "outputs": {}}
    for name, values in outputs.items():
        rows = _best(values, tensors[name], specs.get(name, OutputSpec()))
        printed_tables.show(f"output {name}", rows, list(rows[0]))
        result["outputs"][name] = {"best": rows, "values": values.tolist()}
    if variables.command.get("out"):
        _save(Path(variables.command["out"]), outputs)
    if trace := variables.command.get("profile"):
        repeat = arguments.repeat(variables) or layer_times.REPEAT
        board = one_board(variables, resolved)
        found = layer_times.profiled(plan, inputs, outputs, threads, repeat, board)
        found.show()
        found.save(trace)
        result["profile"] = found.told
    printed_tables.write_json(variables.command.get("json"), result)


def check(resolved: Resolved, variables: Variables) -> None:
    """Raise UserError if layer times are wanted that the package cannot tell, or nobody can."""
    if variables.command.get("profile") is not None:
        layer_times.check(resolved, one_board(variables, resolved))
    elif variables.command.get("repeat") is not None:
        raise UserError("repeat=: doit run repeats runs to time them, with profile=FILE.json")


def one_board(variables: Variables, resolved: Resolved) -> Transport | None:
    """Return the board to run on; None for this machine, UserError for several."""
    found = reached(text := variables.command.get("board"), resolved.hardware)
    if len(found) > 1:
        raise UserError(f"board={text}: these are {len(found)} boards; doit run takes one")
    return found[0] if found else None


def _best(values: np.ndarray, tensor: Tensor, spec: OutputSpec) -> list[dict[str, Any]]:
    """Return what to show of an output: its best classes with label and value, best first.

    Values are real ones; stored integers stand beside those they mean.
    """
    flat = values.reshape(-1)
    is_class = input_samples.is_class(values, tensor)
    is_stored = values.dtype.kind in "iu" and not is_class and bool(tensor.quantization)
    # That there is a name for each class was checked when the recipe was.
    labels = class_names.read(spec.labels) if spec.labels is not None else None
    scores = input_samples.real_values(flat, tensor).astype(np.float64)
    if spec.postprocess == "softmax" and not is_class:
        with np.errstate(all="ignore"):  # an infinite score has no probability: NaN is shown
            scores = np.exp(scores - scores.max())
            scores /= scores.sum()
    rows = []
    for place, index in enumerate(input_samples.ranking(values, _BEST, tensor), start=1):
        row: dict[str, Any] = {"place": place, "class": index}
        if labels is not None:
            row["label"] = labels[index] if 0 <= index < len(labels) else "?"
        if not is_class:
            column = "probability" if spec.postprocess == "softmax" else "value"
            row[column] = round(float(scores[index]), 6)
        if is_stored:
            row["stored"] = int(flat[index])
        rows.append(row)
    return rows[:1] if spec.postprocess == "argmax" else rows


def _save(path: Path, outputs: dict[str, np.ndarray]) -> None:
    if path.suffix != ".npz":
        raise UserError(f"out={path}: must end in .npz")
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as file:
        for name, values in outputs.items():
            with file.open(f"{name.replace('/', '_')}.npy", "w") as entry:
                np.lib.format.write_array(entry, values, allow_pickle=False)
    path = out_files.write("out", str(path), held.getvalue())
    print(f"written: {shown(path)}")
