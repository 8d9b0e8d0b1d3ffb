"""Recipe files to checked recipes: `extends`, overrides, paths, and where each value came from."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hw.profile import Hardware
from pipelines import paths, work_folder
from pipelines.documents import fields, validate
from pipelines.documents.board_files import list_boards, load_board
from pipelines.documents.positions import Entry, Node
from pipelines.documents.trees import is_path_like, merge, read
from pipelines.errors import Fault, UserError, cut, nearest, shown
from pipelines.recipe import model_files, overrides, package_folder
from pipelines.recipe.consistency import contradictions
from pipelines.recipe.recipe import Recipe, flatten
from pipelines.recipe.resolved import Resolved, no_file, place_of
from stages.options import c_identifier


def load_recipe(name_or_path: str, variables: Mapping[str, str] | None = None) -> Resolved:
    """Return a recipe by name (in recipes/) or path, with fields overridden by dotted name.

    Raises one UserError with every fault of the recipe, its parents, its board and the overrides.
    """
    path = find_recipe(name_or_path)
    faults: list[Fault] = []
    tree = _with_parents(path, faults, ())
    if tree is None:
        raise UserError.of(faults)
    stated = tree
    tree = _absolute(overrides.apply(tree, variables or {}, faults), Recipe)
    is_partial = any(fault.field == "extends" for fault in faults)
    recipe = validate.validate(Recipe, tree, faults, is_partial=is_partial)
    _cross_check(recipe, tree, path, faults)
    hardware = _hardware(tree, faults)
    if recipe is not None and hardware is not None:
        _check_floats(recipe, hardware, tree, faults)
    if faults or recipe is None or hardware is None:
        raise UserError.of(faults)
    return Resolved(
        path.stem,
        path,
        recipe,
        hardware,
        _package(path.stem, recipe, stated) if variables else path.stem,
        _board(tree),
        _origins(recipe, tree),
        {"recipe": name_or_path, **(variables or {})},
        tree,
    )


def _package(name: str, built: Recipe, tree: Node) -> str:
    """Return the folder of a package that the command line may have changed."""
    return package_folder.folder(
        name,
        built=built,
        stated=validate.validate(Recipe, _absolute(tree, Recipe), []),
        board=_board(tree),
        is_taken=_is_taken,
    )


def _board(tree: Node) -> str:
    """Return the board that a tree states, a path of it whole."""
    node = validate.find(tree, ("hardware",))
    if node is None or not isinstance(node.value, str):
        return str(Recipe.model_fields["hardware"].default)
    if not is_path_like(node.value):
        return node.value
    return os.path.normpath(node.span.source.folder / paths.expanded(node.value))


def list_recipes(*, own: bool = False) -> list[tuple[str, str]]:
    """Return (name, description) of every recipe that is found by name and names a model, or that
    is wrong: without a model a file is there to be extended, if nothing is wrong with it.

    The work folder's come first, then those shipped with bitkiln, unless only its `own` are wanted.
    """
    listed = []
    for name, path in _by_name().items():
        if own and not path.is_relative_to(work_folder.RECIPES):
            continue
        faults: list[Fault] = []
        tree = _with_parents(path, faults, ())
        if wrong := _wrong(tree, faults):
            listed.append((name, f"cannot be read: {wrong}"))
        elif tree is not None and validate.find(tree, ("model",)) is not None:
            node = validate.find(tree, ("description",))
            listed.append((name, str(node.value) if node is not None else ""))
    return listed


def _wrong(tree: Node | None, faults: Sequence[Fault]) -> str:
    """What keeps a file from being a recipe or the beginning of one, as far as a glance shows."""
    if faults:
        return (
            f"{faults[0].field}: {faults[0].sentence}" if tree is not None else faults[0].sentence
        )
    words = tree.value if tree is not None and isinstance(tree.value, Mapping) else {}
    known = {"extends", *Recipe.model_fields}
    unknown = next((word for word in words if word not in known), None)
    return f"{unknown}: unknown field" if unknown is not None else ""


def find_recipe(name_or_path: str) -> Path:
    """Return the file of a recipe, given by path or by its name in recipes/."""
    if is_path_like(name_or_path):
        path = paths.expanded(name_or_path).absolute()
        if not paths.is_file(path):
            raise UserError(f"no recipe file '{cut(name_or_path)}' (in {Path.cwd()})")
        return Path(os.path.normpath(path))
    for folder in work_folder.recipe_folders():
        path = folder / f"{name_or_path}.yaml"
        if name_or_path and paths.is_file(path):
            return path
    known = [name for name, _ in list_recipes()]
    close = nearest(name_or_path, known)
    hint = f"did you mean '{close}'?" if close else f"accepted: {', '.join(known)}"
    raise UserError(
        f"no recipe '{cut(name_or_path)}' in {shown(work_folder.RECIPES)}; {hint} "
        "(`doit recipes` lists them; a path must end in .yaml)"
    )


def _with_parents(path: Path, faults: list[Fault], below: tuple[Path, ...]) -> Node | None:
    """Return a file's tree laid over those it extends; None if any of them cannot be read."""
    tree = read(path, faults)
    if tree is None or not isinstance(tree.value, Mapping):
        return None
    extends = tree.value.get("extends")
    if extends is None or not isinstance(extends.node.value, str):
        return tree
    name, span = extends.node.value, extends.node.span
    parent = _find_parent(name, path.parent)
    if parent is None:
        folders = (path.parent, *work_folder.recipe_folders())
        known = sorted({file.stem for folder in folders for file in _yaml(folder)})
        close = nearest(name, known)
        hint = f"; did you mean '{close}'?" if close else ""
        faults.append(Fault(span, "extends", f"no recipe '{name}'{hint}"))
        return tree
    line = (*below, path)
    if parent.resolve() in [file.resolve() for file in line]:
        chain = " → ".join(file.name for file in (*line, parent))
        faults.append(Fault(span, "extends", f"goes in a circle: {chain}"))
        return tree
    base = _with_parents(parent, faults, line)
    return None if base is None else merge(base, tree)


def _find_parent(name: str, folder: Path) -> Path | None:
    """Return the file a recipe extends: a path from its folder, or a name there or in a folder of
    recipes."""
    if is_path_like(name):
        candidates = [folder / paths.expanded(name)]
    else:
        folders = (folder, *work_folder.recipe_folders())
        candidates = [each / f"{name}.yaml" for each in folders]
    return next((Path(os.path.normpath(path)) for path in candidates if paths.is_file(path)), None)


def _by_name() -> dict[str, Path]:
    """Return the file of every name in the folders of recipes, the first folder's first."""
    found: dict[str, Path] = {}
    for folder in work_folder.recipe_folders():
        for path in sorted(folder.rglob("*.yaml")):
            found.setdefault(path.relative_to(folder).with_suffix("").as_posix(), path)
    return found


def _is_taken(name: str) -> bool:
    """Whether a recipe has this name, in whatever folder of a folder of recipes."""
    return any(
        True for folder in work_folder.recipe_folders() for _ in folder.rglob(f"{name}.yaml")
    )


def _yaml(folder: Path) -> Iterator[Path]:
    return folder.glob("*.yaml")


def _absolute(tree: Node, annotation: Any) -> Node:
    """Return the tree with each path made absolute, from the folder of what states it."""
    kind, inner = fields.kind_of(annotation)
    if isinstance(tree.value, str) and fields.is_path(annotation):
        path = tree.span.source.folder / paths.expanded(tree.value)
        return Node(os.path.normpath(path), tree.span)
    if isinstance(tree.value, Mapping) and kind in ("model", "mapping"):
        entries = {}
        for key, entry in tree.value.items():
            below = inner
            if kind == "model":
                below = inner.model_fields[key].annotation if key in inner.model_fields else None
            entries[key] = Entry(entry.key, _absolute(entry.node, below))
        return Node(entries, tree.span)
    if isinstance(tree.value, tuple) and kind == "list":
        return Node(tuple(_absolute(item, inner) for item in tree.value), tree.span)
    return tree


def _cross_check(recipe: Recipe | None, tree: Node, path: Path, faults: list[Fault]) -> None:
    """Report what is wrong between sections, and files that are not there.

    If some sections are faulty, the others are still checked, so that all is reported at once.
    """
    suspect: set[str] = set()
    if any(fault.field == "extends" for fault in faults):
        suspect.update(fields.names(Recipe))  # a parent that was not found may set anything
    if recipe is None and isinstance(tree.value, Mapping):
        faulty = set()
        for fault in faults:
            section = re.split(r"[.\[]", fault.field)[0]
            faulty |= {section, nearest(section, fields.names(Recipe)) or section}
        suspect |= faulty
        known = [name for name in fields.names(Recipe) if name not in faulty]
        healthy = {name: tree.value[name] for name in known if name in tree.value}
        recipe = validate.validate(Recipe, Node(healthy, tree.span), [])
    if recipe is None:
        return
    for field_path, sentence, about in contradictions(recipe):
        if not suspect.intersection(about):
            faults.append(Fault(place_of(tree, field_path), field_path, sentence))
    model = recipe.model.file
    if model is not None:
        place = place_of(tree, "model.file")
        if not model_files.is_accepted(model):
            accepted = ", ".join(model_files.ENDINGS)
            sentence = f"cannot import '{model.name}'; accepted: files that end in {accepted}"
            faults.append(Fault(place, "model.file", sentence))
        elif not paths.is_file(model):
            faults.append(Fault(place, "model.file", no_file(model)))
    if recipe.package.name is None and "package" not in suspect:
        try:
            c_identifier(path.stem)
        except ValueError as error:
            sentence = f"the file's name is the package's: {error}; or set package.name"
            faults.append(Fault(tree.span, "", sentence))


def _hardware(tree: Node, faults: list[Fault]) -> Hardware | None:
    node = validate.find(tree, ("hardware",))
    if node is None:
        name, span = Recipe.model_fields["hardware"].default, tree.span
    elif isinstance(node.value, str) and node.value:
        name, span = node.value, node.span
    else:
        return None
    return load_board(name, span, faults)


def _check_floats(recipe: Recipe, hardware: Hardware, tree: Node, faults: list[Fault]) -> None:
    """Report floats that the processor cannot multiply."""
    if recipe.floats == "float16" and not hardware.multiplies_float16:
        place = place_of(tree, "floats")
        boards = [load_board(name, place, []) for name in list_boards() if name != "host"]
        accepted = ", ".join(b.name for b in boards if b is not None and b.multiplies_float16)
        sentence = (
            "float16 needs a processor that multiplies floats of 16 bits (+fullfp16), and "
            f"{hardware.name} has none; accepted: hardware {accepted}; or write floats: float32"
        )
        faults.append(Fault(place, "floats", sentence))


def _origins(recipe: Recipe, tree: Node) -> dict[str, str]:
    stated = {path: span.origin for path, span in tree.leaves()}
    leaves = flatten(recipe.model_dump(mode="json"))
    return {path: stated.get(path, "default") for path, _ in leaves}
