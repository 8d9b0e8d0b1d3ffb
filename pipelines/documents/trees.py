"""Reading a recipe or board file, and laying one tree over another."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pipelines.documents.positions import MAX_BYTES, Entry, Node, parse
from pipelines.errors import Fault, Source, Span, shown

SUFFIXES = (".yaml", ".yml")


def read(path: Path, faults: list[Fault]) -> Node | None:
    """Return the tree of a YAML file whose top is a mapping; None, with faults, if it is not."""
    source = Source(shown(path), path.parent, ())
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        text = data.decode("utf-8-sig")
    except OSError as error:
        reason = (error.strerror or "unknown reason").lower()
        faults.append(Fault(Span(source, 1, 1), "", f"cannot be read: {reason}"))
        return None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        column = error.start - (error.object.rfind(b"\n", 0, error.start) + 1) + 1
        lines = tuple(error.object.decode("utf-8", "replace").splitlines())
        source = Source(source.name, source.folder, lines)
        faults.append(Fault(Span(source, line, column), "", "is not UTF-8 text"))
        return None
    source = Source(shown(path), path.parent, tuple(text.splitlines()))
    tree = parse(text, source, faults)
    if tree is not None and not isinstance(tree.value, Mapping):
        found = "is empty" if tree.value is None else "is not a mapping of fields"
        faults.append(Fault(tree.span, "", f"{found}; write lines such as `hardware: rpi3`"))
        return None
    return tree


def merge(parent: Node, child: Node) -> Node:
    """Lay a child over its parent: mappings merge, lists and scalars (null too) replace."""
    if not (isinstance(parent.value, Mapping) and isinstance(child.value, Mapping)):
        return child
    entries = dict(parent.value)
    for key, entry in child.value.items():
        old = entries.get(key)
        entries[key] = entry if old is None else Entry(entry.key, merge(old.node, entry.node))
    return Node(entries, child.span)


def is_path_like(name: str) -> bool:
    """Whether a recipe or board is named by the path of a file."""
    return name.endswith(SUFFIXES)
