"""A positioned tree to a pydantic model, every fault worded for the person who wrote it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from pipelines.documents import fields
from pipelines.documents.positions import Entry, Node
from pipelines.errors import Fault, Span, did_you_mean, nearest

Location = tuple[str | int, ...]
AnyModel = TypeVar("AnyModel", bound=BaseModel)


def validate(
    model: type[AnyModel], tree: Node, faults: list[Fault], *, is_partial: bool = False
) -> AnyModel | None:
    """Return the model a tree describes; None, with what is wrong in `faults`, if it does not.

    A field that already has a fault gets no second one; in a partial tree nothing is missing.
    """
    try:
        # By way of JSON, since strict mode takes lists for tuples and text for paths only there.
        return model.model_validate_json(json.dumps(tree.plain()))
    except ValidationError as error:
        known = {fault.field for fault in faults}
        faults.extend(
            fault
            for is_missing, fault in _faults(model, tree, error)
            if fault.field not in known and not (is_partial and is_missing)
        )
        return None


def locate(tree: Node, location: Location) -> Span:
    """Return where a location stands: a scalar's own place, else the key it hangs from.

    What is not in the tree is looked for at the nearest thing around it that is.
    """
    span, node = tree.span, tree
    for part in location:
        child: Node | None = None
        if isinstance(node.value, Mapping) and part in node.value:
            entry: Entry = node.value[str(part)]
            child, span = entry.node, entry.key
        elif isinstance(node.value, tuple) and isinstance(part, int) and part < len(node.value):
            child = node.value[part]
            span = child.span
        if child is None:
            return span
        node = child
    is_scalar = not isinstance(node.value, Mapping | tuple)
    return node.span if is_scalar and node.value is not None else span


def find(tree: Node, location: Sequence[str | int]) -> Node | None:
    """Return the node at a location, None if the tree has none there."""
    node = tree
    for part in location:
        if isinstance(node.value, Mapping) and part in node.value:
            node = node.value[str(part)].node
        elif isinstance(node.value, tuple) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
        else:
            return None
    return node


def described(value: object) -> str:
    """Return what was found, in words."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return f"the number {value}"
    if isinstance(value, str):
        return f"the text '{value if len(value) <= 40 else value[:39] + '…'}'"
    return "a mapping" if isinstance(value, Mapping) else "a list"


def _faults(
    model: type[BaseModel], tree: Node, error: ValidationError
) -> Iterator[tuple[bool, Fault]]:
    """Yield what pydantic found, in our words, and whether it is a field that is missing."""
    excused: set[Location] = set()  # fields that are missing only because their name is misspelt
    errors = error.errors(include_url=False)
    for item in errors:
        if item["type"] == "extra_forbidden":
            location = item["loc"]
            parent, word = location[:-1], str(location[-1])
            owner = fields.at(model, parent)[1]
            known = fields.names(owner) if owner is not None else ()
            close = nearest(word, known)
            if close:
                excused.add((*parent, close))
            span = _key_span(tree, location)
            sentence = f"unknown field{did_you_mean(word, known)}"
            yield False, Fault(span, fields.text(location), sentence)
    for item in errors:
        location = item["loc"]
        if item["type"] == "extra_forbidden" or location in excused:
            continue
        node = find(tree, location)
        value = None if node is None else node.value
        is_missing = item["type"] == "missing"
        sentence = (
            _missing(model, location)
            if is_missing
            else _sentence(item["type"], value, item.get("ctx", {}), item["msg"])
        )
        yield is_missing, Fault(locate(tree, location), fields.text(location), sentence)


def _key_span(tree: Node, location: Location) -> Span:
    parent = find(tree, location[:-1])
    if parent is not None and isinstance(parent.value, Mapping):
        entry = parent.value.get(str(location[-1]))
        if entry is not None:
            return entry.key
    return locate(tree, location)


def _missing(model: type[BaseModel], location: Location) -> str:
    owner = fields.at(model, location[:-1])[1]
    field = owner.model_fields[str(location[-1])]
    says = (field.description or "").splitlines()[0].rstrip(".") if field.description else ""
    return f"is missing: {says[:1].lower()}{says[1:]}" if says else "is missing"


_EXPECTED = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": "text",
    "path_type": "a path",
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping of fields",
    "model_attributes_type": "a mapping of fields",
}

_WORDED: Mapping[str, Callable[[Any, Mapping[str, Any]], str]] = {
    "greater_than_equal": lambda value, ctx: f"{value} is too small; the least is {ctx['ge']}",
    "greater_than": lambda value, ctx: f"{value} is too small; it must exceed {ctx['gt']}",
    "less_than_equal": lambda value, ctx: f"{value} is too large; the most is {ctx['le']}",
    "too_short": lambda value, ctx: f"needs at least {ctx['min_length']} item, has {len(value)}",
    "too_long": lambda value, ctx: f"takes at most {ctx['max_length']} items, has {len(value)}",
    "string_too_short": lambda value, ctx: "must not be empty",
    "value_error": lambda value, ctx: str(ctx["error"]),
}


def _sentence(kind: str, value: object, ctx: Mapping[str, Any], message: str) -> str:
    if kind in _EXPECTED:
        hint = "; quote it" if kind == "string_type" and _is_plain(value) else ""
        return f"expected {_EXPECTED[kind]}, found {described(value)}{hint}"
    if kind == "literal_error":
        accepted = re.findall(r"'([^']*)'", ctx["expected"])
        found = f"'{value}'" if isinstance(value, str) else described(value)
        close = nearest(value, accepted) if isinstance(value, str) else None
        end = f"; did you mean '{close}'?" if close else ""
        return f"{found} is not accepted; accepted: {', '.join(accepted)}{end}"
    if kind in _WORDED:
        return _WORDED[kind](value, ctx)
    return f"{message[:1].lower()}{message[1:]}, found {described(value)}"


def _is_plain(value: object) -> bool:
    return isinstance(value, bool | int | float)
