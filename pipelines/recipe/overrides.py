"""The variables of the command line: which there are, and what they change in a recipe."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipelines.documents import fields
from pipelines.documents.positions import Entry, Node
from pipelines.documents.positions import parse as parse_yaml
from pipelines.errors import COMMAND_LINE, Fault, Source, Span, UserError, did_you_mean, nearest
from pipelines.recipe.recipe import Recipe

COMMAND_VARIABLES = ("recipe", "file", "input", "out", "json", "threads")
_VARIABLE = re.compile(r"([^\W\d]\w*(?:[.\[]\S*?)?)=(.*)", re.DOTALL)
# `extends` says where a file starts from; on the command line that is recipe= itself.
_FIELDS = tuple(name for name in fields.dotted(Recipe) if name != "extends")


@dataclass(frozen=True)
class Variables:
    """What the command line says: variables of commands, and recipe fields by dotted name."""

    command: Mapping[str, str]
    fields: Mapping[str, str]

    @property
    def recipe(self) -> str | None:
        """The recipe asked for, if any."""
        return self.command.get("recipe")


def parse(argv: Sequence[str], allowed: Collection[str] = COMMAND_VARIABLES) -> Variables:
    """Return the name=value arguments among `argv`; the others are doit's own.

    `allowed` are the variables of commands; any field of a recipe may be named besides. Unknown
    and repeated names are one UserError.
    """
    command: dict[str, str] = {}
    recipe: dict[str, str] = {}
    faults: list[Fault] = []
    for argument in argv:
        match = _VARIABLE.fullmatch(argument)
        if match is None:
            continue
        name, value = match.groups()
        if name in command or name in recipe:
            faults.append(Fault(span(name, argument), name, "is given twice"))
        elif name in allowed:
            command[name] = value
        elif name != "extends" and fields.split(Recipe, name) is not None:
            recipe[name] = value
        else:
            faults.append(Fault(span(name, argument), name, _unknown(name, allowed)))
    if faults:
        raise UserError.of(faults)
    return Variables(command, recipe)


def _unknown(name: str, allowed: Collection[str]) -> str:
    close = nearest(name, [*allowed, *_FIELDS])
    if close:
        return f"unknown variable; did you mean '{close}'?"
    sections = [field for field in _FIELDS if "." not in field]
    return (
        f"unknown variable; accepted: {', '.join(allowed)}, "
        f"and a recipe's fields ({', '.join(sections)})"
    )


def span(name: str, argument: str) -> Span:
    """Return the place of a variable's name on the command line."""
    return Span(Source(COMMAND_LINE, Path.cwd(), (argument,)), 1, 1, len(name))


def apply(tree: Node, overrides: Mapping[str, str], faults: list[Fault]) -> Node:
    """Return the tree with fields replaced by values from the command line, written in YAML."""
    for name, text in overrides.items():
        argument = f"{name}={text}"
        path = fields.split(Recipe, name)
        if path is None or name == "extends":
            known = [*_FIELDS]
            faults.append(
                Fault(span(name, argument), name, f"unknown field{did_you_mean(name, known)}")
            )
            continue
        node = _value(name, text, faults)
        if node is not None:
            tree = _with(tree, path, node, span(name, argument))
    return tree


def _value(name: str, text: str, faults: list[Fault]) -> Node | None:
    """Return the node of a value, placed after the `=` of its variable."""
    start = len(name) + 1
    source = Source(COMMAND_LINE, Path.cwd(), (f"{name}={text}",))
    found: list[Fault] = []
    node = parse_yaml(text, Source(COMMAND_LINE, Path.cwd(), (text,)), found)
    faults.extend(
        Fault(_shifted(fault.span, source, start), name, fault.sentence) for fault in found
    )
    return None if node is None else _moved(node, source, start)


def _shifted(place: Span, source: Source, start: int) -> Span:
    return Span(source, 1, place.column + start, place.width)


def _moved(node: Node, source: Source, start: int) -> Node:
    value = node.value
    if isinstance(value, Mapping):
        value = {
            key: Entry(_shifted(entry.key, source, start), _moved(entry.node, source, start))
            for key, entry in value.items()
        }
    elif isinstance(value, tuple):
        value = tuple(_moved(item, source, start) for item in value)
    return Node(value, _shifted(node.span, source, start))


def _with(tree: Node, path: Sequence[str], node: Node, key: Span) -> Node:
    """Return the tree with one field set, mappings on the way made where there are none."""
    if not path:
        return node
    entries = dict(tree.value) if isinstance(tree.value, Mapping) else {}
    old = entries.get(path[0])
    below = old.node if old is not None else Node(None, key)
    is_last = len(path) == 1
    place = key if is_last or old is None else old.key
    entries[path[0]] = Entry(place, _with(below, path[1:], node, key))
    return Node(entries, tree.span)
