"""Which fields a model has, read from its annotations: for suggestions, overrides and paths."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Union

from pydantic import BaseModel

Kind = Literal["model", "mapping", "list", "leaf"]


def kind_of(annotation: Any) -> tuple[Kind, Any]:
    """Return what an annotation holds: a model, a mapping or list of something, or a leaf."""
    origin = typing.get_origin(annotation)
    if origin is Annotated:
        return kind_of(typing.get_args(annotation)[0])
    if origin in (Union, types.UnionType):
        inner = [arg for arg in typing.get_args(annotation) if arg is not type(None)]
        return kind_of(inner[0]) if len(inner) == 1 else ("leaf", annotation)
    if origin is dict:
        return "mapping", typing.get_args(annotation)[1]
    if origin is tuple:
        return "list", typing.get_args(annotation)[0]
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "model", annotation
    return "leaf", annotation


def at(annotation: Any, location: Sequence[str | int]) -> tuple[Kind, Any]:
    """Return what stands at a location inside an annotation; a leaf of None if nothing does."""
    kind, inner = kind_of(annotation)
    if not location:
        return kind, inner
    head, rest = location[0], location[1:]
    if kind == "model" and head in inner.model_fields:
        return at(inner.model_fields[head].annotation, rest)
    if (kind == "mapping" and isinstance(head, str)) or (kind == "list" and isinstance(head, int)):
        return at(inner, rest)
    return "leaf", None


def names(model: type[BaseModel]) -> tuple[str, ...]:
    """Return a model's field names."""
    return tuple(model.model_fields)


def dotted(annotation: Any, prefix: str = "") -> Iterator[str]:
    """Yield every dotted name one may set, with <name> for the keys of a mapping."""
    kind, inner = kind_of(annotation)
    if prefix:
        yield prefix
    if kind == "model":
        for name, field in inner.model_fields.items():
            yield from dotted(field.annotation, f"{prefix}.{name}" if prefix else name)
    elif kind == "mapping":
        yield from dotted(inner, f"{prefix}.<name>")


def split(model: type[BaseModel], name: str) -> tuple[str, ...] | None:
    """Return the parts of a dotted name the model knows, else None.

    The key of a mapping may itself hold dots: inputs.x.1.shape is ('inputs', 'x.1', 'shape').
    """
    parts = name.split(".")
    if not all(parts):
        return None
    path: list[str] = []
    kind, inner = "model", model
    while parts:
        if kind == "model" and parts[0] in inner.model_fields:
            path.append(parts.pop(0))
            kind, inner = kind_of(inner.model_fields[path[-1]].annotation)
        elif kind == "mapping":
            item_kind, item = kind_of(inner)
            known = item_kind == "model" and len(parts) > 1 and parts[-1] in item.model_fields
            path.append(".".join(parts[:-1] if known else parts))
            path.extend(parts[-1:] if known else [])
            parts = []
        else:
            return None
    return tuple(path)


def is_path(annotation: Any) -> bool:
    """Whether a leaf is a path, relative to the file that states it."""
    return kind_of(annotation) == ("leaf", Path)


def text(location: Sequence[str | int]) -> str:
    """Return a location as people write it: ('layers', 0, 'match') is layers[0].match."""
    written = ""
    for part in location:
        written += f"[{part}]" if isinstance(part, int) else f".{part}" if written else part
    return written
