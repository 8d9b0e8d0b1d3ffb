"""What the compiler made of a kernel: its assembly, and the loops in it."""

from __future__ import annotations

import re
from typing import Any

from hw.profile import Hardware
from tests.hw.isa_code import assembly

_LABEL = re.compile(r"(\.?L\w+):")
_BRANCH = re.compile(r"\s+(?:j\w+|b\S*|cbn?z|tbn?z)\s+(?:.*,\s*)?(\.?L\w+)$")
_CALL = re.compile(r"\s+(?:callq?|blx?)\s")
_STACK = re.compile(r"\(%rsp|\[(?:sp|x29|r11)\b")
_MOVED = re.compile(r"\tadds?\t(x29|r11|r7), \1,")
_FUSED = re.compile(
    r"\s+(?:vfn?m(?:add|sub)\w*|fn?m(?:add|sub)|fml[as]\w*|vfn?m[as]\.f32|vml[as]\.f32)\s"
)


def listing(function: Any, hardware: Hardware) -> list[str]:
    """The assembly of a PrimFunc, line by line, without comments."""
    mark = re.compile({"x86_64": "#", "aarch64": "//", "armv7": "@"}[hardware.architecture] + ".*")
    return [mark.sub("", line).rstrip() for line in assembly(function, hardware).splitlines()]


def innermost_loops(lines: list[str]) -> list[list[str]]:
    """The loops, from label to branch back, that contain no other."""
    labels = {m.group(1): at for at, line in enumerate(lines) if (m := _LABEL.match(line))}
    spans = set()
    for at, line in enumerate(lines):
        branch = _BRANCH.match(line)
        if branch and labels.get(branch.group(1), at) < at:
            spans.add((labels[branch.group(1)], at))
    inner = [
        (first, last)
        for first, last in spans
        if not any((a, b) != (first, last) and first <= a and b <= last for a, b in spans)
    ]
    return [lines[first : last + 1] for first, last in sorted(inner)]


def count(lines: list[str], mnemonic: str) -> int:
    """How often an instruction occurs."""
    return sum(line.split()[:1] == [mnemonic] for line in lines)


def calls(lines: list[str]) -> list[str]:
    """The lines that call a function."""
    return [line for line in lines if _CALL.match(line)]


def stack_accesses(lines: list[str]) -> list[str]:
    """The lines that read or write the stack frame.

    A frame pointer that the lines move is a register like any other, for a pointer of theirs.
    """
    moved = [found.group(1) for line in lines if (found := _MOVED.match(line))]
    return [
        line
        for line in lines
        if (found := _STACK.search(line)) and not any(name in found.group() for name in moved)
    ]


def fused(lines: list[str]) -> list[str]:
    """The lines that multiply and add floats with one rounding, or might."""
    return [line for line in lines if _FUSED.match(line)]
