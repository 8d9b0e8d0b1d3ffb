"""How each kind of artifact is written as named files and tensors, and read back."""

from __future__ import annotations

import importlib
import json
import pkgutil
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np

from stages.kinds import Files, Golden, Held, Model
from stages.rooms import ROOMS

if TYPE_CHECKING:
    from stages.nodes import IRModule

KINDS = ("source", "model", "golden", "table", "files")


@dataclass(frozen=True)
class SerializedArtifact:
    """An artifact taken apart: small files by relative path, tensors by name, both in order."""

    files: Files = field(default_factory=dict)
    tensors: dict[str, np.ndarray] = field(default_factory=dict)
    held: dict[str, Held] = field(default_factory=dict)
    """Files too large for memory; none of an artifact that was read."""


def take_apart(kind: str, value: Any) -> SerializedArtifact:
    """Return the files and tensors that say all about a value of this kind."""
    match kind:
        case "source":
            return SerializedArtifact(files={"source.onnx": bytes(value)})
        case "model":
            return SerializedArtifact(
                files={"module.json": _module_text(value.module)}, tensors=value.params
            )
        case "golden":
            tensors = {f"inputs/{name}": array for name, array in value.inputs.items()}
            tensors |= {f"outputs/{name}": array for name, array in value.outputs.items()}
            return SerializedArtifact(tensors=tensors)
        case "table":
            text = json.dumps(value, sort_keys=True, indent=1, allow_nan=False)
            return SerializedArtifact(files={"table.json": text.encode()})
        case "files":
            for name in value:
                _check_relative(name)
            held = {name: data for name, data in value.items() if isinstance(data, Held)}
            return SerializedArtifact({n: d for n, d in value.items() if n not in held}, held=held)
    raise ValueError(f"unknown kind of artifact '{kind}'; known: {', '.join(KINDS)}")


def put_together(kind: str, parts: SerializedArtifact) -> Any:
    """Return the value that `take_apart` took apart."""
    match kind:
        case "source":
            return parts.files["source.onnx"]
        case "model":
            return Model(_module(parts.files["module.json"]), dict(parts.tensors))
        case "golden":
            return Golden(_below("inputs/", parts.tensors), _below("outputs/", parts.tensors))
        case "table":
            return json.loads(parts.files["table.json"])
        case "files":
            return dict(parts.files)
    raise ValueError(f"unknown kind of artifact '{kind}'; known: {', '.join(KINDS)}")


def _below(prefix: str, tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}


def _check_relative(name: str) -> None:
    path = PurePosixPath(name)
    if path.is_absolute() or not path.parts or ".." in path.parts or str(path) != name:
        raise ValueError(f"'{name}' is not a plain relative path")


def _module_text(module: IRModule) -> bytes:
    """Return TVM's JSON of a module without source positions, which hold absolute paths."""
    import tvm

    text = str(tvm.ir.save_json(module))
    if '"ir.SourceName"' in text:
        # Loaded and saved once more, the emptied nodes are gone and the text is the one text.
        text = str(tvm.ir.save_json(tvm.ir.load_json(_without_spans(text))))
    return text.encode()


def _without_spans(text: str) -> str:
    """Drop every source position from TVM's JSON: node 0 is None, and each span refers to it."""
    graph = json.loads(text)
    nodes = graph["nodes"]
    if nodes[0] != {"type": "None"}:
        raise ValueError("TVM's JSON does not begin with the None node; cannot drop positions")
    for node in nodes:
        if node["type"] in ("ir.Span", "ir.SequentialSpan", "ir.SourceName"):
            node.clear()
            node["type"] = "None"
        elif isinstance(node.get("data"), dict) and "span" in node["data"]:
            node["data"]["span"] = 0
    return json.dumps(graph, separators=(",", ":"))


def _module(text: bytes) -> IRModule:
    import tvm

    for room in ROOMS:
        package = importlib.import_module(f"stages.{room}")
        for found in pkgutil.iter_modules(package.__path__):
            # Imported for the operators they register: the module may call any of them.
            importlib.import_module(f"stages.{room}.{found.name}")
    return tvm.ir.load_json(text.decode())
