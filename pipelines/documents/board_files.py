"""Board files: YAML to hardware profiles, with the same positioned errors as recipes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from hw import host
from hw.profile import Hardware
from pipelines import paths, work_folder
from pipelines.documents import validate
from pipelines.documents.positions import Entry, Node
from pipelines.documents.trees import is_path_like, merge, read
from pipelines.errors import Fault, Span, nearest, shown
from pipelines.recipe.quantization_fields import Section

BOARDS = work_folder.CODE / "hw" / "boards"


class DetectedBoard(Section):
    """The board file of the machine at hand, whose features are found rather than stated."""

    description: str = ""
    """One line for people."""
    detect: Literal[True]
    """Find out what the processor can do."""


def list_boards() -> tuple[str, ...]:
    """Return the names of the boards in hw/boards."""
    return tuple(sorted(path.stem for path in BOARDS.glob("*.yaml")))


def load_board(name: str, stated: Span, faults: list[Fault]) -> Hardware | None:
    """Return the profile of a board, by name or by path relative to what states it.

    None, with what is wrong in `faults`, if there is no such board or its file is faulty.
    """
    path = stated.source.folder / paths.expanded(name) if is_path_like(name) else None
    if path is None:
        path = BOARDS / f"{name}.yaml"
        if name not in list_boards():
            close = nearest(name, list_boards())
            hint = f"; did you mean '{close}'?" if close else ""
            boards = ", ".join(list_boards())
            sentence = f"no board '{name}'; accepted: {boards}, or the path of a .yaml file{hint}"
            faults.append(Fault(stated, "hardware", sentence))
            return None
    elif not paths.is_file(path):
        faults.append(Fault(stated, "hardware", f"no board file '{shown(path)}'"))
        return None
    tree = read(path, faults)
    if tree is None or not isinstance(tree.value, Mapping):
        return None
    if "detect" in tree.value:
        return _detected(tree, stated, faults)
    if "name" in tree.value:
        key = tree.value["name"].key
        faults.append(Fault(key, "name", f"leave it out: the name is the file's, '{path.stem}'"))
        return None
    name_node = Node(path.stem, tree.span)
    named = merge(tree, Node({"name": Entry(tree.span, name_node)}, tree.span))
    return validate.validate(Hardware, named, faults)


def _detected(tree: Node, stated: Span, faults: list[Fault]) -> Hardware | None:
    board = validate.validate(DetectedBoard, tree, faults)
    if board is None:
        return None
    try:
        return host.detect().model_copy(update={"description": board.description})
    except ValueError as error:
        faults.append(Fault(stated, "hardware", str(error)))
        return None
