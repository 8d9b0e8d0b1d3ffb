"""Turns a program into the files of a package."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hw.profile import Hardware
from stages.kinds import Golden, Held, HeldFiles, Table
from stages.options import PackageOptions
from stages.packaging.c_source.features import needed_features
from stages.packaging.c_source.graph_source import ABI_VERSION, graph_source
from stages.packaging.compiling.linker import Linker, default_cache
from stages.packaging.files import bill_of_materials, wheel
from stages.packaging.files.client_files import client_files
from stages.packaging.files.digests import chunks, size_and_digest
from stages.packaging.files.golden_file import write_golden
from stages.packaging.files.header import header_source
from stages.packaging.files.source_folder import FOLDER, source
from stages.packaging.program.arena import Arena, plan
from stages.packaging.program.kernel_program import Program, TensorSpec
from stages.packaging.program.packed_constants import Constants, pack_constants

MANIFEST_VERSION = 1
LARGE = 1 << 20
"""Bytes from which on a file is not held in memory."""
_DIGITS = 12


def assemble(
    *,
    program: Program,
    golden: Golden,
    options: PackageOptions,
    hardware: Hardware,
    provenance: Table,
    cache: Path | None = None,
) -> HeldFiles:
    """Emit, compile and link a program; equal arguments give equal bytes, in any folder.

    Returns NAME.h, golden.bin, manifest.json, NOTICE and NAME.cdx.json, of libNAME.so, libNAME.a,
    NAME, source/ and the wheel those that `options.formats` asks for, and what `client_files` adds.
    `provenance` goes into the manifest as it is; its `tools` are versions by distribution. `cache`
    is where the C compiler keeps its per-target libraries.
    """
    name, tools = options.name, provenance.get("tools", {})
    arena = plan(program)
    constants = pack_constants(program)
    components = bill_of_materials.components(name, options.formats, hardware, tools)
    built: HeldFiles = {
        f"{name}.h": header_source(program, name, hardware, options.profile).encode(),
        "golden.bin": write_golden(golden, program.inputs, program.outputs),
        "NOTICE": bill_of_materials.notice(components).encode(),
        **client_files(
            name, program.inputs, program.outputs, hardware, options.formats, options.profile
        ),
    }
    with tempfile.TemporaryDirectory(prefix="bitkiln-") as folder:
        linker = Linker(Path(folder), name, hardware, cache or default_cache())
        built |= _link(linker, program, arena, constants, options)
        if "source" in options.formats:
            built[f"{FOLDER}/{name}.h"] = built[f"{name}.h"]
        sizes = {file: size_and_digest(chunks(data)) for file, data in built.items()}
        digests = {file: digest for file, (_, digest) in sizes.items()}
        version = options.version or _version_of(digests)
        weights = size_and_digest(constants.chunks())[1]
        bill = bill_of_materials.bill(name, version, components, hardware, tools, weights, digests)
        built[f"{name}.cdx.json"] = bill.encode()
        if "wheel" in options.formats:
            built |= _wheel(Path(folder), name, version, hardware, built)
    sizes |= {
        file: size_and_digest(chunks(data)) for file, data in built.items() if file not in sizes
    }
    manifest = _manifest(program, arena, constants, options, version, hardware, provenance, sizes)
    text = json.dumps(manifest, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    built["manifest.json"] = text.encode()
    return dict(sorted(built.items()))


def _held(path: Path) -> bytes | Held:
    """A file of a build folder, which is about to go: a large one elsewhere on disk."""
    return path.read_bytes() if path.stat().st_size < LARGE else Held(path)


def _version_of(digests: Mapping[str, str]) -> str:
    """Return the version of a package whose recipe states none: it tells its files apart."""
    text = json.dumps(sorted(digests.items()))
    return f"0+{size_and_digest([text.encode()])[1][:_DIGITS]}"


def _wheel(
    folder: Path, name: str, version: str, hardware: Hardware, built: HeldFiles
) -> HeldFiles:
    path = folder / wheel.file_name(name, version, hardware)
    texts = {file: data for file, data in built.items() if isinstance(data, bytes)}
    wheel.write(
        path,
        name=name,
        version=version,
        hardware=hardware,
        library=built[f"lib{name}.so"],
        loader=texts[f"{name}.py"],
        notice=texts["NOTICE"],
        bill=texts[f"{name}.cdx.json"],
    )
    return {path.name: _held(path)}


def _link(
    linker: Linker,
    program: Program,
    arena: Arena,
    constants: Constants,
    options: PackageOptions,
) -> HeldFiles:
    formats, profile = options.formats, options.profile
    graph = graph_source(program, arena, constants, linker.hardware, profile)
    objects = program.objects
    if program.texts:
        # What is linked is then made of the very text that the package holds.
        texts = {f"{symbol}.s": text for symbol, text in program.texts.items()}
        objects = {"kernels.o": linker.assemble_kernels(texts)}
    package = linker.compile_package({"graph.c": graph}, profile)
    own = {**objects, "package.o": package.read_bytes()}
    names = linker.names(own)
    extra = {}
    if {"executable", "source"}.intersection(formats):
        extra["replay.o"] = linker.compile_replay(profile).read_bytes()
    files: HeldFiles = {}
    if {"shared", "static", "executable"}.intersection(formats):
        renamed = linker.privatize(own, extra, names)
        library = [*renamed[: len(own)], linker.compile_constants(constants.chunks())]
        if "shared" in formats:
            files[f"lib{linker.name}.so"] = _held(linker.shared(library))
        if "static" in formats:
            files[f"lib{linker.name}.a"] = _held(linker.static(library))
        if "executable" in formats:
            files[linker.name] = _held(linker.executable([*library, *renamed[len(own) :]]))
    if "source" in formats:
        texts = source(linker, names, program)
        files |= {file: text.encode() for file, text in texts.items()}
        written = linker.write_constants(constants.chunks())
        files[f"{FOLDER}/{written.name}"] = _held(written)
    return files


def _manifest(
    program: Program,
    arena: Arena,
    constants: Constants,
    options: PackageOptions,
    version: str,
    hardware: Hardware,
    provenance: Table,
    sizes: Mapping[str, tuple[int, str]],
) -> dict[str, Any]:
    """The manifest; `sizes` are the bytes of each file, and their digest."""
    return {
        "manifest_version": MANIFEST_VERSION,
        "abi_version": ABI_VERSION,
        "name": options.name,
        "version": version,
        "formats": list(options.formats),
        **({"profile": True} if options.profile else {}),
        "target": {
            "hardware": hardware.name,
            "architecture": hardware.architecture,
            "triple": hardware.triple,
            "cpu": hardware.cpu,
            "system": hardware.zig_target,
            "system_cpu": hardware.zig_cpu,
            "required_features": list(needed_features(hardware)),
        },
        "inputs": [_tensor(spec) for spec in program.inputs],
        "outputs": [_tensor(spec) for spec in program.outputs],
        "layers": [
            {"layer": call.layer, "kernel": call.symbol, "max_tasks": call.max_tasks}
            for call in program.calls
        ],
        "memory": {
            "buffer_bytes": arena.buffer_bytes,
            "scratch_bytes_per_thread": arena.scratch_bytes,
            "arena_bytes_one_thread": arena.size(1),
            "constant_bytes": constants.size,
        },
        "files": {
            name: {"bytes": size, "sha256": digest}
            for name, (size, digest) in sorted(sizes.items())
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
