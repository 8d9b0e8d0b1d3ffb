"""`doit run`: one input through the package, and what it says."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from pipelines import packages, samples, tables
from pipelines.commands import arguments
from pipelines.errors import UserError, shown
from pipelines.load import Resolved
from pipelines.overrides import Variables
from pipelines.plan import Plan

_BEST = 5


def run(*, plan: Plan, resolved: Resolved, variables: Variables) -> None:
    """Print the best classes of every output; out=FILE.npz keeps the outputs whole."""
    path = arguments.required_path(
        variables, "input", f"doit run recipe={resolved.name} input=FILE.npy"
    )
    sample = samples.read_array(path)
    threads = arguments.threads(variables) or 1
    with packages.opened(plan) as opened:
        if len(opened.package.inputs) != 1:
            names = ", ".join(str(tensor) for tensor in opened.package.inputs)
            raise UserError(f"{resolved.name} has several inputs ({names}); run takes one")
        (tensor,) = opened.package.inputs
        prepared = samples.prepare(sample, tensor, resolved.recipe.inputs.get(tensor.name))
        outputs = opened.run({tensor.name: prepared}, threads)
        print(f"{resolved.name}, {opened.how}: {tensor} from {shown(path.absolute())}")
    result: dict[str, Any] = {"recipe": resolved.name, "outputs": {}}
    for name, values in outputs.items():
        rows = _best(values, samples.labels(resolved, name), _postprocess(resolved, name))
        tables.show(f"output {name}", rows, list(rows[0]))
        result["outputs"][name] = {"best": rows, "values": values.tolist()}
    if variables.command.get("out"):
        _save(Path(variables.command["out"]), outputs)
    tables.write_json(variables.command.get("json"), result)


def _best(values: np.ndarray, labels: list[str] | None, postprocess: str) -> list[dict[str, Any]]:
    flat = values.reshape(-1)
    is_class = samples.is_class(values)
    scores = flat.astype(np.float64)
    if postprocess == "softmax" and not is_class:
        scores = np.exp(scores - scores.max())
        scores /= scores.sum()
    rows = []
    for place, index in enumerate(samples.ranking(values, _BEST), start=1):
        row: dict[str, Any] = {"place": place, "class": index}
        if labels is not None:
            row["label"] = labels[index] if index < len(labels) else "?"
        if not is_class:
            column = "probability" if postprocess == "softmax" else "value"
            row[column] = round(float(scores[index]), 6)
        rows.append(row)
    return rows[:1] if postprocess == "argmax" else rows


def _postprocess(resolved: Resolved, name: str) -> str:
    spec = resolved.recipe.outputs.get(name)
    return spec.postprocess if spec is not None else "none"


def _save(path: Path, outputs: dict[str, np.ndarray]) -> None:
    if path.suffix != ".npz":
        raise UserError(f"out={path}: must end in .npz")
    try:
        with zipfile.ZipFile(path, "w") as file:
            for name, values in outputs.items():
                with file.open(f"{name.replace('/', '_')}.npy", "w") as entry:
                    np.lib.format.write_array(entry, values, allow_pickle=False)
    except OSError as error:
        raise UserError(f"out={path}: cannot write it: {error.strerror}") from error
    print(f"written: {shown(path.absolute())}")
