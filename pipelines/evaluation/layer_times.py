"""Layer times of one input, as a package's own program tells them: a table and a trace."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.builds.plan import Plan
from pipelines.builds.publication import package_folder_of
from pipelines.errors import UserError, shown
from pipelines.machine import is_here
from pipelines.output import printed_tables
from pipelines.recipe.resolved import Resolved
from pipelines.remote.transport import Transport
from pipelines.runners import Package, open_package, replay
from pipelines.runners.package import Tensor
from pipelines.store import atomic

REPEAT = 20
"""Runs that are timed."""
_FIGURES = ("mean_ms", "least_ms", "share")
_BESIDE = {"between": "(between layers)", "whole": "(whole)"}
"""What is timed besides layers: where no thread was in one, and all of it."""

Array = np.ndarray[Any, Any]


def check(resolved: Resolved, board: Transport | None) -> None:
    """Raise UserError if a package tells no layer times, or times would mean nothing."""
    package = resolved.recipe.package
    if not package.profile:
        raise UserError(
            "profile=: the package is built without layer times; add package.profile=true to the "
            "command line, or package: {profile: true} to the recipe"
        )
    if "executable" not in package.formats:
        raise UserError(
            "profile=: it is the package's own program that tells layer times; add executable to "
            "package.formats"
        )
    architecture = resolved.hardware.architecture
    if (board is None or board.board.is_local) and not is_here(architecture):
        raise UserError(
            f"profile=: packages for {architecture} are emulated here, and times of an emulator "
            "mean nothing; give board=user@host"
        )


@dataclass(frozen=True)
class Profile:
    """What a program told."""

    trace: bytes
    told: Mapping[str, Any]
    """The table in it."""

    def show(self) -> None:
        """Print the table."""
        threads = "1 thread" if self.told["threads"] == 1 else f"{self.told['threads']} threads"
        rows = [*self.told["layers"]]
        rows += [{"layer": name, "kernel": "", **self.told[key]} for key, name in _BESIDE.items()]
        shown_rows = [
            {
                "mean_ms": f"{row['mean_ms']:.6f}",
                "least_ms": f"{row['least_ms']:.6f}",
                "share": f"{100 * row['share']:.1f} %",
                "layer": _plain(row["layer"]),
                "kernel": _plain(row["kernel"]),
            }
            for row in rows
        ]
        title = f"layers: mean and least of {self.told['runs']} runs, {threads}"
        printed_tables.show(title, shown_rows, list(shown_rows[0]))

    def save(self, name: str) -> None:
        """Write the trace."""
        path = Path(name)
        try:
            atomic.replace(path, self.trace)
        except OSError as error:
            raise UserError(f"profile={name}: cannot write it: {error.strerror}") from error
        print(f"written: {shown(path.absolute())}; open it at https://ui.perfetto.dev")


def profiled(
    plan: Plan,
    inputs: Mapping[str, Array],
    outputs: Mapping[str, Array],
    threads: int,
    repeat: int,
    board: Transport | None,
) -> Profile:
    """Time a package's layers on inputs whose outputs are known, here or on a board.

    UserError if its program cannot run; CheckError if that gives other outputs.
    """
    package = open_package(package_folder_of(plan))
    golden = _golden(package, inputs, outputs)
    rounds = repeat + 1  # the first one warms up
    if board is None:
        return _read(package.name, replay.trace(package, golden, threads, rounds))
    from pipelines.remote.remote_package import trace

    return _read(package.name, trace(board, package, golden, threads, rounds))


def _golden(package: Package, inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> bytes:
    """The golden vectors of one sample; outputs as bits, so that a float's zero keeps its sign."""
    from stages.kinds import Golden
    from stages.packaging.files.golden_file import write_golden
    from stages.packaging.program.kernel_program import TensorSpec

    def bits(tensor: Tensor) -> str:
        return f"uint{8 * np.dtype(tensor.dtype).itemsize}"

    golden = Golden(
        {item.name: inputs[item.name][None] for item in package.inputs},
        {item.name: outputs[item.name].view(bits(item))[None] for item in package.outputs},
    )
    return write_golden(
        golden,
        [TensorSpec(item.name, item.dtype, item.shape) for item in package.inputs],
        [TensorSpec(item.name, bits(item), item.shape) for item in package.outputs],
    )


def _read(name: str, trace: bytes) -> Profile:
    """A trace, and of its table what a table has to have."""
    try:
        told = json.loads(trace)["otherData"]
        table = {
            **{key: int(told[key]) for key in ("threads", "runs")},
            "layers": [
                {"layer": str(row["layer"]), "kernel": str(row["kernel"]), **_figures(row)}
                for row in told["layers"]
            ],
            **{key: _figures(told[key]) for key in _BESIDE},
        }
    except (ValueError, KeyError, TypeError, RecursionError):
        raise UserError(
            f"{name}: its program wrote no trace of layers; build the package again"
        ) from None
    return Profile(trace, table)


def _figures(row: Mapping[str, Any]) -> dict[str, float]:
    return {key: float(row[key]) for key in _FIGURES}


def _plain(text: str) -> str:
    """A name for a terminal."""
    return "".join(c if c.isprintable() else "?" for c in text)
