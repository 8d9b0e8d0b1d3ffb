"""MXNet's symbol JSON: nodes in the order they run in, each with text attributes.

Versions before 1.0 call attributes `attr` or `param`; inputs are `[node, output, version]`.
Fused operators carry the operators that they stand for as a symbol of their own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stages.errors import StageError
from stages.importing.limits import MAX_NODES
from stages.importing.unsupported import UnsupportedError, without_outputs

_MAX_DEPTH = 4


@dataclass(frozen=True)
class Attributes:
    """An operator's attributes, written as Python writes values."""

    texts: Mapping[str, str]

    def has(self, name: str) -> bool:
        """Whether a value is given."""
        return self.texts.get(name, "None") not in ("None", "")

    def text(self, name: str, default: str) -> str:
        """An attribute as it is written."""
        return self.texts[name] if self.has(name) else default

    def flag(self, name: str, default: bool = False) -> bool:
        """A truth value."""
        text = self.text(name, str(default)).lower()
        if text not in ("true", "false", "0", "1"):
            raise UnsupportedError(f"has {name} = {self.texts[name]!r}; True or False is expected")
        return text in ("true", "1")

    def number(self, name: str, default: float | None = None) -> float:
        """A number; UnsupportedError where it is needed and missing, or none."""
        if not self.has(name):
            if default is None:
                raise UnsupportedError(f"lacks the attribute {name}")
            return default
        try:
            return float(self.texts[name])
        except ValueError as error:
            raise UnsupportedError(f"has {name} = {self.texts[name]!r}, no number") from error

    def integer(self, name: str, default: int | None = None) -> int:
        """A whole number."""
        value = self.number(name, default)
        if value != int(value):
            raise UnsupportedError(f"has {name} = {value}, which is not whole")
        return int(value)

    def integers(self, name: str, default: tuple[int, ...] = ()) -> tuple[int, ...]:
        """Whole numbers in parentheses or brackets."""
        if not self.has(name):
            return default
        text = self.texts[name].strip().strip("()[]")
        try:
            values = [int(part.strip().rstrip("L")) for part in text.split(",") if part.strip()]
        except ValueError as error:
            raise UnsupportedError(f"has {name} = {text!r}; whole numbers are expected") from error
        return tuple(values) or default


@dataclass(frozen=True)
class Node:
    """One operator, or a variable (`null`); inputs are (node, output) pairs.

    `position` is the node's own among those of its symbol.
    """

    op: str
    name: str
    attributes: Attributes
    inputs: tuple[tuple[int, int], ...]
    subgraphs: tuple[Symbol, ...] = ()
    position: int = 0


@dataclass(frozen=True)
class Symbol:
    """A graph; `heads` are its outputs, `version` MXNet's as 10901 for 1.9.1 (0: unknown)."""

    nodes: tuple[Node, ...]
    heads: tuple[tuple[int, int], ...]
    version: int


def read_symbol(source: bytes) -> Symbol:
    """Read the JSON text; StageError for what is no symbol, or not in order."""
    try:
        content = json.loads(source)
    except (ValueError, RecursionError) as error:
        raise _damaged("it is no JSON text") from error
    return _symbol(content, 0)


def _symbol(content: Any, depth: int) -> Symbol:
    if depth > _MAX_DEPTH:
        raise _damaged("symbols inside symbols go too deep")
    if not isinstance(content, dict) or not isinstance(content.get("nodes"), list):
        raise _damaged("it has no list of nodes")
    if not 1 <= len(content["nodes"]) <= MAX_NODES:
        raise _damaged(f"it has {len(content['nodes']):,} nodes; 1 to {MAX_NODES:,} are accepted")
    nodes = tuple(_node(item, at, depth) for at, item in enumerate(content["nodes"]))
    heads = _references(content.get("heads"), len(nodes), "a head")
    if not heads:
        raise without_outputs()
    return Symbol(nodes, heads, _version(content.get("attrs")))


def _node(item: Any, at: int, depth: int) -> Node:
    if not isinstance(item, dict):
        raise _damaged(f"node {at} is no object")
    op, name = item.get("op"), item.get("name")
    if not isinstance(op, str) or not isinstance(name, str):
        raise _damaged(f"node {at} has no operator or no name")
    texts: dict[str, str] = {}
    for key in ("param", "attr", "attrs"):
        found = item.get(key) or {}
        if not isinstance(found, dict):
            raise _damaged(f"node '{name}' has attributes that are no object")
        texts |= {str(k): v if isinstance(v, str) else str(v) for k, v in found.items()}
    inputs = _references(item.get("inputs"), at, f"node '{name}'")
    subgraphs = item.get("subgraphs") or []
    if not isinstance(subgraphs, list):
        raise _damaged(f"node '{name}' has subgraphs that are no list")
    inner = tuple(_symbol(subgraph, depth + 1) for subgraph in subgraphs)
    return Node(op, name, Attributes(texts), inputs, inner, at)


def _references(content: Any, before: int, who: str) -> tuple[tuple[int, int], ...]:
    """Pairs of node and output; a node may only read nodes before it, so there are no cycles."""
    if content is None:
        return ()
    if not isinstance(content, list):
        raise _damaged(f"{who} has inputs that are no list")
    pairs = []
    for item in content:
        if not isinstance(item, list) or len(item) < 2 or not all(type(i) is int for i in item[:2]):
            raise _damaged(f"{who} has an input that is no [node, output]")
        if not 0 <= item[0] < before or item[1] < 0:
            raise _damaged(f"{who} reads node {item[0]}, which is not before it")
        pairs.append((item[0], item[1]))
    return tuple(pairs)


def _version(attributes: Any) -> int:
    entry = attributes.get("mxnet_version") if isinstance(attributes, dict) else None
    return entry[1] if isinstance(entry, list) and len(entry) == 2 and type(entry[1]) is int else 0


def _damaged(why: str) -> StageError:
    return StageError(f"this is no valid MXNet symbol: {why}")
