"""`doit bench`: the package's time beside that of ONNX Runtime on the float32 twin, in one run."""

from __future__ import annotations

import contextlib
import importlib.util
import math
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pipelines import checking, packages, tables
from pipelines.commands import arguments
from pipelines.errors import UserError
from pipelines.load import Resolved
from pipelines.overrides import Variables
from pipelines.plan import Plan
from pipelines.runners.native import NativeRunner
from pipelines.runners.package import Package, open_package
from stages.errors import StageError

Array = np.ndarray[Any, Any]
Timed = Callable[[int], float]
"""Runs a number of inferences one after another and returns the seconds each took, on average."""

REPEAT = 20
PACKAGE, TWIN = "package", "float32 twin"
_TURN_SECONDS = 2e-3
"""What one turn measures at least, so that the clock's own steps do not count."""
_QUARTILES = (25, 50, 75)


def run(*, plan: Plan, resolved: Resolved, variables: Variables) -> None:
    """Print medians, spread and their ratio; json=FILE also keeps the time of every turn."""
    if importlib.util.find_spec("onnxruntime") is None:
        raise UserError(
            "onnxruntime is not installed, and times are only shown beside another's; "
            "run: pip install -e '.[test]'"
        )
    if not packages.is_native(plan):
        raise UserError(
            f"{resolved.name} is for {resolved.hardware.name}, and bench times this machine's "
            f"own processor; try: doit bench recipe={resolved.name} hardware=host"
        )
    threads = arguments.threads(variables) or 1
    repeat = arguments.repeat(variables) or REPEAT
    load = os.getloadavg()[0]
    package = open_package(packages.folder(plan))
    inputs = {name: array[0] for name, array in package.golden()[0].items()}
    with NativeRunner(package) as runner:
        sides: dict[str, Timed] = {
            PACKAGE: lambda count: float(np.mean(runner.timed(inputs, threads, count)[1])),
            TWIN: _twin(checking.source(plan), package, inputs, threads),
        }
        times = _alternate(sides, repeat)
    result = {
        "recipe": resolved.name,
        "processor": processor(),
        "threads": threads,
        "repeat": repeat,
        "load_at_start": load,
        "onnxruntime": importlib.import_module("onnxruntime").__version__,
        "seconds": times,
        **_compared(times),
    }
    _tell(result)
    tables.write_json(variables.command.get("json"), result)


def processor() -> str:
    """Return what this machine's processor calls itself."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()


def _twin(source: bytes, package: Package, inputs: Mapping[str, Array], threads: int) -> Timed:
    """Return what times the float32 twin in ONNX Runtime with as many threads."""
    import onnxruntime as ort

    from stages.importing import float_twin

    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    # Without quantizers values may shrink to denormals, which would cost the twin alone.
    options.add_session_config_entry("session.set_denormal_as_zero", "1")
    # Its threads shall not spin on while it is the other's turn.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    try:
        twin = float_twin.build(source)
        session = ort.InferenceSession(twin, options, providers=["CPUExecutionProvider"])
        binding = session.io_binding()
        for name, array in inputs.items():
            binding.bind_cpu_input(name, np.ascontiguousarray(array))
        for output in session.get_outputs():
            binding.bind_output(output.name)
        session.run_with_iobinding(binding)
        found = [list(array.shape) for array in binding.copy_outputs_to_cpu()]
    except StageError as error:
        raise UserError(f"bench: {error}") from error
    except Exception as error:
        # ONNX Runtime has exceptions of its own for each of its status codes.
        reason = str(error).strip().partition("\n")[0][:300]
        raise UserError(f"bench: ONNX Runtime cannot run the float32 twin: {reason}") from error
    wanted = [list(tensor.shape) for tensor in package.outputs]
    if [math.prod(shape) for shape in found] != [math.prod(shape) for shape in wanted]:
        raise UserError(f"bench: the float32 twin gives outputs {found}, the package {wanted}")

    def timed(count: int) -> float:
        begin = time.perf_counter()
        for _ in range(count):
            session.run_with_iobinding(binding)
        return (time.perf_counter() - begin) / count

    return timed


def _alternate(sides: Mapping[str, Timed], repeat: int) -> dict[str, list[float]]:
    """Return each side's seconds, one a turn; who is first changes from round to round.

    A turn begins with one run that is not counted: it brings back what the other side's turn
    drove from the caches.
    """
    counts = {name: math.ceil(_TURN_SECONDS / max(timed(1), 1e-7)) for name, timed in sides.items()}
    times: dict[str, list[float]] = {name: [] for name in sides}
    names = list(sides)
    for index in _rounds(repeat):
        for name in names if index % 2 == 0 else reversed(names):
            sides[name](1)
            times[name].append(sides[name](counts[name]))
    return times


def _rounds(repeat: int) -> Iterator[int]:
    """Yield the rounds; what is shown of them is drawn between two, by this thread alone."""
    if not sys.stdout.isatty():
        yield from range(repeat)
        return
    from rich.progress import Progress

    with Progress(auto_refresh=False, transient=True) as progress:
        task = progress.add_task("timing", total=repeat)
        for index in range(repeat):
            progress.refresh()
            yield index
            progress.advance(task)


def _compared(times: Mapping[str, list[float]]) -> dict[str, Any]:
    """Return medians and quartiles, and how many times as fast the package is as the twin."""
    rows = []
    for name, seconds in times.items():
        low, median, high = (float(q) for q in np.percentile(seconds, _QUARTILES))
        rows.append(
            {"what": name, "median_ms": 1e3 * median, "quartiles_ms": [1e3 * low, 1e3 * high]}
        )
    ratios = np.asarray(times[TWIN]) / np.asarray(times[PACKAGE])
    low, _, high = (float(q) for q in np.percentile(ratios, _QUARTILES))
    return {
        "rows": rows,
        "ratio": float(np.median(times[TWIN]) / np.median(times[PACKAGE])),
        "ratio_quartiles": [low, high],
    }


def _tell(result: Mapping[str, Any]) -> None:
    threads = f"{result['threads']} thread{'s' if result['threads'] > 1 else ''}"
    title = (
        f"{result['recipe']}: {result['processor']}, {threads}, {result['repeat']} rounds, "
        f"load {result['load_at_start']:.1f} at the start"
    )
    names = {PACKAGE: "package", TWIN: f"float32 twin, ONNX Runtime {result['onnxruntime']}"}
    rows = [
        {
            "what": names[row["what"]],
            "median ms": _ms(row["median_ms"]),
            "middle half, ms": " to ".join(map(_ms, row["quartiles_ms"])),
        }
        for row in result["rows"]
    ]
    tables.show(title, rows, ["what", "median ms", "middle half, ms"])
    low, high = result["ratio_quartiles"]
    print(
        f"the package is {result['ratio']:.2f} times as fast as the float32 twin "
        f"({low:.2f} to {high:.2f} in the middle half of the rounds)"
    )


def _ms(value: float) -> str:
    return f"{value:.3f}"
