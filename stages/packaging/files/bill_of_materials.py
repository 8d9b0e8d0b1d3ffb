"""What of others and of bitkiln is in a package's files, and under which licences.

NOTICE says it to people, NAME.cdx.json to tools (CycloneDX 1.6, ECMA-424); both read `components`.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from hw.profile import Hardware
from stages.packaging.c_source.graph_source import ABI_VERSION
from stages.packaging.files.source_folder import FOLDER
from stages.packaging.files.templates import filled, text

_SPACE = uuid.uuid5(uuid.NAMESPACE_URL, "http://cyclonedx.org/schema/bom-1.6.schema.json")


@dataclass(frozen=True)
class Component:
    """Code that was put into files of a package."""

    name: str
    version: str
    """Version of the code itself; empty where it has none."""
    licence: Mapping[str, Any]
    """An entry of CycloneDX's `licenses`."""
    files: tuple[str, ...]
    """The package's files that hold it, or may."""
    said: str
    """What NOTICE says of it."""


def built(name: str, formats: Collection[str]) -> tuple[str, ...]:
    """Return the files of a package that are compiled, or hold what is to be."""
    files = {
        "shared": f"lib{name}.so",
        "static": f"lib{name}.a",
        "executable": name,
        "source": f"{FOLDER}/",
    }
    return tuple(file for item, file in files.items() if item in formats)


def components(
    name: str, formats: Collection[str], hardware: Hardware, tools: Mapping[str, str]
) -> tuple[Component, ...]:
    """Return what is in a package: bitkiln's own first. `tools` are versions by distribution."""
    files = built(name, formats)
    texts = [f"{name}.h"]
    texts += [f"{name}.py"] if "shared" in formats else []
    texts += ["example.c", "example.cpp"] if {"shared", "static"}.intersection(formats) else []
    linked = tuple(file for file in files if not file.endswith((".a", "/")))
    found = [
        Component(
            "bitkiln-runtime",
            str(ABI_VERSION),
            {"license": {"id": "Apache-2.0"}},
            (*files, *texts),
            f"The runtime in {', '.join(files)}, the graph around the kernels, {', '.join(texts)}\n"
            "and this file are of bitkiln: Apache License, Version 2.0, which stands at the end.\n",
        )
    ]
    if linked:
        found.append(
            Component(
                "compiler-rt",
                f"zig-{tools.get('ziglang', '')}".rstrip("-"),
                {"expression": "MIT AND (Apache-2.0 WITH LLVM-exception)"},
                linked,
                f"{' and '.join(linked)} may hold functions of compiler-rt, LLVM's support "
                "library, as Zig rewrote\nit (division of long integers, conversion of halves): "
                "MIT License of Zig, below; LLVM's original\nis under the Apache License, Version "
                "2.0, with LLVM exceptions.\n",
            )
        )
    if name in linked:
        found.append(
            Component(
                "glibc-startup",
                glibc_of(hardware),
                {"license": {"name": "LGPL-2.1-or-later with glibc's exception for startup files"}},
                (name,),
                f"{name} begins with startup code of glibc (crt1.o, libc_nonshared.a): GNU Lesser "
                "General Public\nLicense, version 2.1 or later, with the exception that lets "
                "anyone link and give these files\naway in executables without restriction.\n",
            )
        )
    return tuple(found)


def glibc_of(hardware: Hardware) -> str:
    """Return the version of glibc that libraries are linked against, such as 2.28."""
    return hardware.zig_target.partition(".")[2]


def notice(found: Collection[Component]) -> str:
    """Return NOTICE: what the files contain, and under which licences."""
    own, *others = found
    last = "libc and libpthread are the target's; nothing else of them is in these files.\n"
    return filled(
        "NOTICE.in",
        {
            "@OWN@": own.said,
            "@LINKED@": "\n".join([*(component.said for component in others), last]),
            "@ZIG@": text("zig.txt"),
            "@APACHE@": text("apache-2.0.txt").strip("\n"),
        },
    )


def bill(
    name: str,
    version: str,
    found: Collection[Component],
    hardware: Hardware,
    tools: Mapping[str, str],
    weights: str,
    files: Mapping[str, str],
) -> str:
    """Return NAME.cdx.json, a bill of materials: `weights` and `files` have SHA-256 in hex.

    It holds no time, and its serial number is made of the files, so that equal packages have equal
    bills.
    """
    model = {
        "type": "machine-learning-model",
        "bom-ref": "model",
        "name": name,
        "description": "the network's weights, thresholds and multipliers, as they were packed",
        "hashes": _hashes(weights),
    }
    parts = [_component(component) for component in found]
    digest = json.dumps([version, weights, sorted(files.items())])
    bom = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": uuid.uuid5(_SPACE, digest).urn,
        "version": 1,
        "metadata": {
            "tools": {
                "components": [
                    {"type": "application", "name": "bitkiln"},
                    *({"type": "application", "name": tool, "version": tools[tool],
                       "purl": f"pkg:pypi/{tool}@{tools[tool]}"} for tool in sorted(tools)),
                ]
            },
            "component": {
                "type": "library",
                "bom-ref": "package",
                "name": name,
                "version": version,
                "description": f"a neural network compiled for {hardware.name}",
                "properties": [
                    {"name": "bitkiln:triple", "value": hardware.triple},
                    {"name": "bitkiln:cpu", "value": hardware.cpu},
                ],
                "components": [
                    {"type": "file", "name": file, "hashes": _hashes(sha256)}
                    for file, sha256 in sorted(files.items())
                ],
            },
        },
        "components": [model, *parts],
        "dependencies": [
            {"ref": "package", "dependsOn": ["model", *(part["bom-ref"] for part in parts)]}
        ],
    }  # fmt: skip
    return json.dumps(bom, indent=1) + "\n"


def _component(component: Component) -> dict[str, Any]:
    return {
        "type": "library",
        "bom-ref": component.name,
        "name": component.name,
        **({"version": component.version} if component.version else {}),
        "licenses": [dict(component.licence)],
        "properties": [{"name": "bitkiln:file", "value": file} for file in component.files],
    }


def _hashes(sha256: str) -> list[dict[str, str]]:
    return [{"alg": "SHA-256", "content": sha256}]
