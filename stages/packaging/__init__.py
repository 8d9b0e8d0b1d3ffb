"""Packaging: compiled kernels, the graph in C and a small runtime become one deployable package.

The result runs without Python and without TVM; it is checked by golden vectors it carries.
"""

from __future__ import annotations

import importlib.metadata
from dataclasses import asdict

from hw.profile import Hardware
from stages.kinds import Golden, HeldFiles, Model, Table
from stages.numerics.onnx_islands import islands_of
from stages.options import PackageOptions
from stages.packaging.compiling.kernel_objects import Memo
from stages.packaging.files.package_files import assemble
from stages.packaging.program_builder import program_of

__all__ = ["run"]

TOOLS = ("apache-tvm", "ziglang")


def run(
    *,
    model: Model,
    bodies: Table,
    schedules: Table,
    golden: Golden,
    options: PackageOptions,
    hardware: Hardware,
    memo: Memo,
) -> HeldFiles:
    """Files of the package: header, libraries, executable, manifest, golden vectors, and what lets
    others use them."""
    as_text = "source" in options.formats
    program = program_of(model, bodies, schedules, hardware, memo, as_text)
    provenance = {
        "hardware": hardware.ingredients(),
        "numerics": str(model.module["main"].attrs.get("numerics", "")),
        "islands": [asdict(island) for island in islands_of(model)],
        "kernels": {name: body["certificate"] for name, body in sorted(bodies.items())},
        "tools": {tool: importlib.metadata.version(tool) for tool in TOOLS},
    }
    return assemble(
        program=program,
        golden=golden,
        options=options,
        hardware=hardware,
        provenance=provenance,
    )
