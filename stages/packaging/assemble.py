"""Turns a program into the files of a package."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from hw.profile import Hardware
from stages.kinds import Files, Golden, Table
from stages.options import PackageOptions
from stages.packaging import arena, emit, features
from stages.packaging.golden import write_golden
from stages.packaging.header import header_source
from stages.packaging.link import Linker, default_cache
from stages.packaging.program import Program, TensorSpec

MANIFEST_VERSION = 1


def assemble(
    *,
    program: Program,
    golden: Golden,
    options: PackageOptions,
    hardware: Hardware,
    provenance: Table,
    cache: Path | None = None,
) -> Files:
    """Emit, compile and link a program; equal arguments give equal bytes, in any folder.

    Returns NAME.h, golden.bin, manifest.json, and of libNAME.so, libNAME.a and NAME those that
    `options.formats` asks for. `provenance` goes into the manifest as it is. `cache` is where the
    C compiler keeps its per-target libraries.
    """
    plan = arena.plan(program)
    constants = emit.pack_constants(program)
    built: Files = {
        f"{options.name}.h": header_source(program, options.name, hardware).encode(),
        "golden.bin": write_golden(golden, program.inputs, program.outputs),
    }
    with tempfile.TemporaryDirectory(prefix="bitkiln-") as folder:
        linker = Linker(Path(folder), options.name, hardware, cache or default_cache())
        built |= _link(linker, program, plan, constants, options.formats)
    manifest = _manifest(program, plan, constants, options, hardware, provenance, built)
    text = json.dumps(manifest, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    built["manifest.json"] = text.encode()
    return dict(sorted(built.items()))


def _link(
    linker: Linker,
    program: Program,
    plan: arena.Arena,
    constants: emit.Constants,
    formats: Iterable[str],
) -> Files:
    package = linker.compile_package(
        {
            "graph.c": emit.graph_source(program, plan, constants, linker.hardware),
            "constants.S": emit.constants_source(linker.hardware),
            "constants.bin": constants.blob,
        }
    )
    own = {**program.objects, "package.o": package.read_bytes()}
    wants_program = "executable" in formats
    extra = {"replay.o": linker.compile_replay().read_bytes()} if wants_program else {}
    names = linker.privatize(own, extra)
    library = names[: len(own)]
    files: Files = {}
    if "shared" in formats:
        files[f"lib{linker.name}.so"] = linker.shared(library)
    if "static" in formats:
        files[f"lib{linker.name}.a"] = linker.static(library)
    if wants_program:
        files[linker.name] = linker.executable(names)
    return files


def _manifest(
    program: Program,
    plan: arena.Arena,
    constants: emit.Constants,
    options: PackageOptions,
    hardware: Hardware,
    provenance: Table,
    built: Files,
) -> dict[str, Any]:
    return {
        "manifest_version": MANIFEST_VERSION,
        "abi_version": emit.ABI_VERSION,
        "name": options.name,
        "formats": list(options.formats),
        "target": {
            "hardware": hardware.name,
            "architecture": hardware.architecture,
            "triple": hardware.triple,
            "cpu": hardware.cpu,
            "system": hardware.zig_target,
            "required_features": list(features.needed(hardware)),
        },
        "inputs": [_tensor(spec) for spec in program.inputs],
        "outputs": [_tensor(spec) for spec in program.outputs],
        "layers": [
            {"layer": call.layer, "kernel": call.symbol, "max_tasks": call.max_tasks}
            for call in program.calls
        ],
        "memory": {
            "buffer_bytes": plan.buffer_bytes,
            "scratch_bytes_per_thread": plan.scratch_bytes,
            "arena_bytes_one_thread": plan.size(1),
            "constant_bytes": len(constants.blob),
        },
        "files": {
            name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            for name, data in sorted(built.items())
        },
        "provenance": provenance,
    }


def _tensor(spec: TensorSpec) -> dict[str, Any]:
    quantization: Mapping[str, Any] | None = spec.quantization
    return {
        "name": spec.name,
        "dtype": spec.dtype,
        "shape": list(spec.shape),
        "bytes": spec.nbytes,
        "quantization": None if quantization is None else dict(quantization),
    }
