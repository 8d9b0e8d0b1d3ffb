"""PyTorch's exported programs (`.pt2`), read without PyTorch: the archive, its graph, its tensors.

`torch.export.save` of PyTorch 2.9 and later writes a ZIP archive with one folder, in it
`models/NAME.json` (the graph, by `torch/_export/serde/schema.py`), `data/weights/` and
`data/constants/`: raw little-endian tensors, and a JSON text that gives their types, sizes and
strides. Earlier releases pickled the tensors. Unpickling runs code that the file chooses, so such
files are refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from stages.errors import StageError
from stages.importing.archive import Archive
from stages.importing.limits import MAX_ELEMENTS, MAX_NODES

Array = np.ndarray[Any, Any]

DTYPES: Mapping[int, str] = {
    1: "uint8", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 6: "float16", 7: "float32",
    8: "float64", 12: "bool", 28: "uint16",
}  # fmt: skip
"""NumPy types by PyTorch's `ScalarType` numbers."""
_HOW = "torch.export.save(torch.export.export(model, inputs), 'model.pt2')"
_OPENED = b"access_subclass_inner_tensor"
"""The operator by which a graph opens weights that are tensor subclasses."""
_WHAT = "PyTorch exported program"


@dataclass(frozen=True)
class Ref:
    """A tensor or symbolic number that a node reads, by its name in the graph."""

    name: str


@dataclass(frozen=True)
class Node:
    """One call: its operator as `aten.conv2d.default`, arguments by name, names of its outputs."""

    op: str
    name: str
    arguments: Mapping[str, Any]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class Meta:
    """Type and extents of a tensor; None is an extent that the program leaves open."""

    dtype: str
    shape: tuple[int | None, ...]


@dataclass(frozen=True)
class Program:
    """A graph, its inputs and outputs in order, and tensors by their names in the graph."""

    nodes: tuple[Node, ...]
    inputs: Mapping[str, Meta]
    outputs: tuple[str, ...]
    constants: Mapping[str, Array]
    version: str


def _is_model(name: str) -> bool:
    return name.endswith(".json") and name.split("/")[-2:-1] == ["models"]


def read_program(source: bytes) -> Program:
    """Read a program; StageError for a damaged file, or one of another kind."""
    archive = Archive(source, _WHAT)
    models = sorted(name for name in archive.names if _is_model(name))
    if not models:
        raise _refused(archive)
    if len(models) > 1:
        raise StageError(f"the file holds {len(models)} programs; one is accepted")
    root = models[0].rsplit("models/", 1)[0]
    order = archive.read(f"{root}byteorder") if f"{root}byteorder" in archive.names else b"little"
    if order.strip() != b"little":
        raise StageError("the program was saved on a big-endian machine; little-endian is accepted")
    content = _json(archive, models[0])
    try:
        return _program(archive, root, models[0].rsplit("/", 1)[1].removesuffix(".json"), content)
    except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
        if _OPENED in archive.read(models[0]):
            raise _packed() from error
        raise archive.damaged(f"its graph does not follow the schema ({error!r})") from error


def _refused(archive: Archive) -> StageError:
    names = archive.names
    if any(name.endswith("serialized_exported_program.json") for name in names):
        return _pickled()
    if any("/code/" in f"/{name}" for name in names):
        return StageError(
            "this is a TorchScript archive of pickles and code; exported programs are accepted",
            hint=f"export the model itself with PyTorch 2.9 or later: {_HOW}",
        )
    if any(name.endswith("data.pkl") for name in names):
        return StageError(
            "this is a pickled PyTorch checkpoint; exported programs are accepted",
            hint=f"load it in PyTorch 2.9 or later and export the model: {_HOW}",
        )
    return archive.damaged("it has no models/*.json")


def _pickled(what: str = "its tensors") -> StageError:
    return StageError(
        f"this exported program keeps {what} as a Python pickle, which is not read because it runs "
        "code; PyTorch 2.9 and later keep plain tensors raw",
        hint=f"export a model of plain tensors again there: {_HOW}",
    )


def _packed(name: str = "") -> StageError:
    weights = f"the weight '{name}'" if name else "a weight"
    return StageError(
        f"{weights} of this exported program is a packed tensor subclass, as torchao's quantize_ "
        "makes them, and is kept as a Python pickle, which is not read because it runs code",
        hint="unwrap the weights before the export: torchao.utils.unwrap_tensor_subclass(model); "
        f"{_HOW}",
    )


def _json(archive: Archive, name: str) -> Any:
    try:
        return json.loads(archive.read(name))
    except (ValueError, RecursionError) as error:
        raise archive.damaged(f"member '{name}' is no JSON text") from error


def _program(archive: Archive, root: str, model: str, content: Any) -> Program:
    module = content["graph_module"]
    graph, signature = module["graph"], module["signature"]
    if len(graph["nodes"]) > MAX_NODES:
        raise archive.damaged(f"it has {len(graph['nodes']):,} nodes; {MAX_NODES:,} are accepted")
    metas = {name: _meta(value) for name, value in graph["tensor_values"].items()}
    stored = _tensors(archive, root, model)
    inputs: dict[str, Meta] = {}
    constants: dict[str, Array] = {}
    for spec in signature["input_specs"]:
        kind, entry = next(iter(spec.items()))
        if kind == "user_input":
            name = _tensor_name(entry["arg"])
            if name not in metas:
                raise StageError(
                    "the program takes an input that is no tensor; tensors are accepted"
                )
            inputs[name] = metas[name]
        elif kind in _STORED:
            key = entry[_STORED[kind]]
            if key not in stored:
                raise archive.damaged(f"it has no tensor '{key}'")
            value = stored[key]
            if value is None:
                raise _packed(key)
            constants[entry["arg"]["name"]] = value
        else:
            raise _pickled(f"the input '{entry['arg']['name']}' ({kind})")
    outputs = []
    for spec in signature["output_specs"]:
        kind, entry = next(iter(spec.items()))
        if kind != "user_output":
            raise StageError(f"the program changes its own state ({kind}); export it in eval mode")
        outputs.append(_tensor_name(entry["arg"]))
    nodes = tuple(_node(item, position) for position, item in enumerate(graph["nodes"]))
    if not outputs or not inputs:
        raise archive.damaged("it has no inputs or no outputs")
    return Program(nodes, inputs, tuple(outputs), constants, str(content.get("torch_version", "")))


_STORED = {
    "parameter": "parameter_name",
    "buffer": "buffer_name",
    "tensor_constant": "tensor_constant_name",
}
"""The kinds of input that are stored tensors, and where each says its tensor's name."""


def _tensor_name(argument: Mapping[str, Any]) -> str:
    if "as_tensor" not in argument:
        raise StageError(
            f"the program takes or gives a value that is no tensor ({next(iter(argument))})",
            hint="export a model of tensors alone",
        )
    return str(argument["as_tensor"]["name"])


def _meta(value: Mapping[str, Any]) -> Meta:
    dtype = DTYPES.get(value["dtype"], f"type {value['dtype']}")
    extents = tuple(size.get("as_int") for size in value["sizes"])
    if any(extent is not None and (type(extent) is not int or extent < 0) for extent in extents):
        raise ValueError(f"sizes {extents}")
    return Meta(dtype, extents)


def _node(item: Mapping[str, Any], position: int) -> Node:
    outputs: list[str] = []
    for output in item["outputs"]:
        kind, value = next(iter(output.items()))
        if kind == "as_tensor":
            outputs.append(value["name"])
        elif kind == "as_tensors":
            outputs.extend(each["name"] for each in value)
        elif kind in ("as_sym_int", "as_sym_bool", "as_sym_float"):
            outputs.append(str(value.get("as_name", "")))
    arguments = {str(each["name"]): _argument(each["arg"]) for each in item["inputs"]}
    op = str(item["target"]).removeprefix("torch.ops.")
    name = item.get("name") or (outputs[0] if outputs else f"node{position}")
    return Node(op, str(name), arguments, tuple(outputs))


def _argument(argument: Mapping[str, Any]) -> Any:
    """An argument as Python has it; tensors as `Ref`, types as NumPy's names."""
    kind, value = next(iter(argument.items()))
    if kind == "as_none":
        return None
    if kind == "as_tensor":
        return Ref(value["name"])
    if kind == "as_tensors":
        return [Ref(each["name"]) for each in value]
    if kind == "as_scalar_type":
        return DTYPES.get(value, f"type {value}")
    if kind == "as_sym_int":
        return _symbolic(value)
    if kind == "as_sym_ints":
        return [_symbolic(each) for each in value]
    return value


def _symbolic(value: Mapping[str, Any]) -> Any:
    return Ref(value["as_name"]) if "as_name" in value else value["as_int"]


def _tensors(archive: Archive, root: str, model: str) -> dict[str, Array | None]:
    """Every stored tensor by its name in the program; None for what is pickled."""
    tensors: dict[str, Array | None] = {}
    bytes_of: dict[str, memoryview] = {}
    for kind in ("weights", "constants"):
        name = f"{root}data/{kind}/{model}_{kind}_config.json"
        if name not in archive.names:
            folder = f"{root}data/{kind}/"
            if any(each.startswith(folder) and each.endswith(".pt") for each in archive.names):
                raise _pickled()
            continue
        for key, entry in _json(archive, name)["config"].items():
            if entry.get("use_pickle"):
                tensors[key] = None
                continue
            path = f"{root}data/{kind}/{entry['path_name']}"
            if path not in bytes_of:
                bytes_of[path] = archive.view(path)
            tensors[key] = _tensor(archive, key, entry["tensor_meta"], bytes_of[path])
    return tensors


def _tensor(archive: Archive, key: str, meta: Mapping[str, Any], data: memoryview) -> Array:
    sizes = [size["as_int"] for size in meta["sizes"]]
    strides = [stride["as_int"] for stride in meta["strides"]]
    offset = meta["storage_offset"]["as_int"]
    if meta["dtype"] not in DTYPES:
        raise StageError(f"tensor '{key}' is of PyTorch's type {meta['dtype']}, which is not read")
    dtype = np.dtype(DTYPES[meta["dtype"]]).newbyteorder("<")
    if any(type(n) is not int or n < 0 for n in (*sizes, *strides, offset)):
        raise archive.damaged(f"tensor '{key}' has sizes {sizes} and strides {strides}")
    if len(sizes) != len(strides) or len(sizes) > 32 or prod(sizes) > MAX_ELEMENTS:
        raise archive.damaged(f"tensor '{key}' has the shape {sizes}")
    last = offset + sum((n - 1) * step for n, step in zip(sizes, strides, strict=True))
    if prod(sizes) and (last + 1) * dtype.itemsize > len(data):
        raise archive.damaged(f"tensor '{key}' reaches beyond its {len(data):,} bytes")
    flat = np.frombuffer(data, dtype, len(data) // dtype.itemsize)
    if not prod(sizes):
        return np.zeros(sizes, dtype)
    view = np.lib.stride_tricks.as_strided(
        flat[offset:], sizes, [step * dtype.itemsize for step in strides], writeable=False
    )
    return np.ascontiguousarray(view).reshape(sizes)  # which would give a scalar an axis
