"""YAML 1.2 text to a tree in which every key and value knows its place."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import yaml

from pipelines.errors import Fault, Source, Span

MAX_BYTES = 64 * 1024
MAX_NODES = 20_000
MAX_DEPTH = 32

Plain = None | bool | int | float | str | list["Plain"] | dict[str, "Plain"]


@dataclass(frozen=True)
class Entry:
    """One key of a mapping: where the key stands, and its value."""

    key: Span
    node: Node


@dataclass(frozen=True)
class Node:
    """A value and its place; a mapping keeps its keys in order."""

    value: bool | int | float | str | tuple[Node, ...] | Mapping[str, Entry] | None
    span: Span

    def plain(self) -> Plain:
        """Return the value as plain JSON data."""
        if isinstance(self.value, Mapping):
            return {key: entry.node.plain() for key, entry in self.value.items()}
        if isinstance(self.value, tuple):
            return [item.plain() for item in self.value]
        return self.value

    def leaves(self, path: str = "") -> Iterator[tuple[str, Span]]:
        """Yield the path and place of every scalar, empty collection, and list of scalars."""
        if isinstance(self.value, Mapping) and self.value:
            for key, entry in self.value.items():
                yield from entry.node.leaves(f"{path}.{key}" if path else key)
        elif isinstance(self.value, tuple) and any(
            isinstance(item.value, Mapping) for item in self.value
        ):
            for index, item in enumerate(self.value):
                yield from item.leaves(f"{path}[{index}]")
        else:
            yield path, self.span


class _Yaml12(yaml.SafeLoader):
    """Resolves plain scalars by the YAML 1.2 core schema, where `on` and 1:30 are text."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012


_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_BOOL = re.compile(r"true|True|TRUE|false|False|FALSE")
_NULL = re.compile(r"~|null|Null|NULL|")
_TAG = "tag:yaml.org,2002:"
_SCALARS = {"null": _NULL, "bool": _BOOL, "int": _INT, "float": _FLOAT}

for _name, _pattern in _SCALARS.items():
    _Yaml12.add_implicit_resolver(_TAG + _name, re.compile(f"^(?:{_pattern.pattern})$"), [None])

# Plain scalars that YAML 1.1, which many editors still speak, reads as something else.
_SURPRISES = (
    (
        re.compile(r"(?i:on|off|yes|no)"),
        "{0} is a truth value in YAML 1.1 and text in 1.2; write true or false, or quote it",
    ),
    (
        re.compile(r"[-+]?0[0-9_]+"),
        "{0} is octal in YAML 1.1 and decimal in 1.2; write it without the leading 0",
    ),
    (
        re.compile(r"[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?"),
        "{0} is a base-60 number in YAML 1.1 and text in 1.2; quote it",
    ),
    (
        re.compile(r"[-+]?(0b[01_]+|0x[0-9a-fA-F]*_[0-9a-fA-F_]*|[0-9]+_[0-9_]*(\.[0-9_]*)?)"),
        "{0} is a number in YAML 1.1 and text in 1.2; write the digits plainly, or quote it",
    ),
)


class _UnreadableError(Exception):
    """Stops the reading of a document that is too large or too deep."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.sentence)
        self.fault = fault


def parse(text: str, source: Source, faults: list[Fault]) -> Node | None:
    """Return the tree of one YAML document, appending what is wrong with it to `faults`.

    None where nothing can be read; an empty document is a null node.
    """
    start = Span(source, 1, 1, len(source.lines[0]) if source.lines else 1)
    if len(text) > MAX_BYTES:
        faults.append(
            Fault(start, "", f"is larger than {MAX_BYTES // 1024} KiB, far beyond any recipe")
        )
        return None
    try:
        loader = _Yaml12(text)
        try:
            root = loader.get_single_node()
        finally:
            loader.dispose()
        return Node(None, start) if root is None else _Converter(source, faults).node(root, "", 0)
    except yaml.MarkedYAMLError as error:
        faults.append(_syntax_fault(error, source))
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        column = error.position - (text.rfind("\n", 0, error.position) + 1) + 1
        code = f"U+{error.character:04X}" if isinstance(error.character, int) else "a byte"
        faults.append(
            Fault(Span(source, line, column), "", f"the character {code} may not stand in YAML")
        )
    except _UnreadableError as error:
        faults.append(error.fault)
    except RecursionError:
        faults.append(Fault(start, "", f"is nested deeper than {MAX_DEPTH} levels"))
    return None


def _syntax_fault(error: yaml.MarkedYAMLError, source: Source) -> Fault:
    mark = error.problem_mark or error.context_mark
    line = min(mark.line + 1, max(1, len(source.lines))) if mark else 1
    column = mark.column + 1 if mark and mark.line + 1 == line else 1
    problem = (error.problem or error.context or "cannot be read").strip()
    if "'\\t'" in problem:
        sentence = "a tab cannot indent YAML; use spaces"
    elif "single document" in (error.context or ""):
        sentence = "holds more than one YAML document; keep one"
    elif "<block end>" in problem:
        sentence = f"this is not YAML: {problem}; check the indentation and the lines above"
    else:
        sentence = f"this is not YAML: {problem}"
    return Fault(Span(source, line, column), "", sentence)


class _Converter:
    """Turns PyYAML's nodes into ours; an alias is expanded where it stands, within a budget."""

    def __init__(self, source: Source, faults: list[Fault]) -> None:
        self.source = source
        self.faults = faults
        self.budget = MAX_NODES

    def node(self, node: yaml.Node, path: str, depth: int) -> Node:
        """Return the tree below `node`, which stands at the field `path`."""
        span = self.span(node)
        self.budget -= 1
        if self.budget < 0:
            section = path.partition("[")[0]
            raise _UnreadableError(Fault(span, section, f"expands to more than {MAX_NODES} values"))
        if depth > MAX_DEPTH:
            section = path.partition("[")[0]
            raise _UnreadableError(
                Fault(span, section, f"is nested deeper than {MAX_DEPTH} levels")
            )
        if isinstance(node, yaml.MappingNode) and node.tag == _TAG + "map":
            return Node(self.entries(node, path, depth), span)
        if isinstance(node, yaml.SequenceNode) and node.tag == _TAG + "seq":
            items = enumerate(node.value)
            return Node(tuple(self.node(it, f"{path}[{i}]", depth + 1) for i, it in items), span)
        if isinstance(node, yaml.ScalarNode):
            return Node(self.scalar(node, path, span), span)
        self.faults.append(Fault(span, path, f"the tag {_short(node.tag)} is not accepted"))
        return Node(None, span)

    def entries(self, node: yaml.MappingNode, path: str, depth: int) -> dict[str, Entry]:
        """Return a mapping's entries; of two equal keys the first counts, the other is a fault."""
        entries: dict[str, Entry] = {}
        for key_node, value_node in node.value:
            span = self.span(key_node)
            key = self.scalar(key_node, path, span) if _is_scalar(key_node) else None
            if not isinstance(key, str):
                self.faults.append(Fault(span, path, "a key must be text; quote it"))
                continue
            field = f"{path}.{key}" if path else key
            if key == "<<":
                self.faults.append(
                    Fault(span, path, "'<<' merges in YAML 1.1 only; repeat the fields, or extends")
                )
                continue
            value = self.node(value_node, field, depth + 1)
            if key in entries:
                first = entries[key].key.line
                self.faults.append(Fault(span, field, f"stands here twice; first in line {first}"))
            else:
                entries[key] = Entry(span, value)
        return entries

    def scalar(
        self, node: yaml.ScalarNode, path: str, span: Span
    ) -> bool | int | float | str | None:
        """Return a scalar's value by its YAML 1.2 tag; a surprising plain scalar is a fault."""
        text: str = node.value
        kind = node.tag.removeprefix(_TAG)
        if node.style is None:
            for pattern, sentence in _SURPRISES:
                if pattern.fullmatch(text):
                    self.faults.append(Fault(span, path, sentence.format(f"'{text}'")))
                    return text
        if kind == "str":
            return text
        if kind not in _SCALARS:
            self.faults.append(Fault(span, path, f"the tag {_short(node.tag)} is not accepted"))
            return None
        if not _SCALARS[kind].fullmatch(text):
            self.faults.append(Fault(span, path, f"'{text}' is not a YAML {kind}"))
            return None
        if kind == "null":
            return None
        if kind == "bool":
            return text.lower() == "true"
        number = _number(text, kind)
        if number is None:
            self.faults.append(Fault(span, path, "is too large a number"))
        return number

    def span(self, node: yaml.Node) -> Span:
        """Return where a node begins and how much of its first line it takes."""
        start, end = node.start_mark, node.end_mark
        lines = self.source.lines
        line_length = len(lines[start.line]) if start.line < len(lines) else 0
        width = (end.column if end.line == start.line else line_length) - start.column
        return Span(self.source, start.line + 1, start.column + 1, max(1, width))


def _is_scalar(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode)


def _number(text: str, kind: str) -> int | float | None:
    """Return a number's value, None where it is beyond 64 bits or float64."""
    if kind == "float":
        value = float(text)
        return value if abs(value) < float("inf") else None
    if len(text) > 64:
        return None
    whole = int(text, 0) if text[:2] in ("0o", "0x") else int(text)
    return whole if abs(whole) < 2**63 else None


def _short(tag: str) -> str:
    return tag.replace(_TAG, "!!")
