"""Kernels as assembly: LLVM's text without what only debuggers and LLVM read, for any assembler.

GNU as and Clang's assembler take what is left. For Arm it gives the same bytes as LLVM's own
objects, for x86-64 the same instructions: what no-ops fill the space in front of a loop is up to
the assembler.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from hw.profile import Hardware
from stages.packaging.c_source.features import needed_features

_TOKEN = re.compile(r"[A-Za-z_.$][\w.$]*")
_LOCAL = re.compile(r"(\.L\w+):")
_LEFT_OUT = re.compile(
    r"\.(file|loc|ident|addrsig\w*|cfi_\w+|fnstart|fnend|cantunwind|save|vsave|setfp|pad)\b"
)
_DECLARED = re.compile(r"\s*\.(?:globl|weak)\s+([\w.$]+)\s*$")

_EXTENSIONS = {
    "dotprod": "dotprod",
    "fullfp16": "fp16",
    "bf16": "bf16",
    "i8mm": "i8mm",
    "sve": "sve",
    "sve2": "sve2",
}
"""Extensions of the architecture, as assemblers call them, by LLVM's features."""


def tidied(text: str) -> str:
    """Return a module's assembly without debug sections, unwinding, and helpers nobody calls."""
    lines = list(_without_uncalled(list(_without_debugging(text.splitlines()))))
    lines = list(_without_unused_sections(lines))
    used = _used(lines)
    kept = (line for line in lines if (m := _LOCAL.match(line)) is None or m[1] in used)
    return "\n".join([*kept, ""])


def _without_debugging(lines: Sequence[str]) -> Iterator[str]:
    is_debugging = False
    for line in lines:
        words = line.split(None, 1)
        if words[:1] == [".section"]:
            is_debugging = words[1].startswith(".debug")
        elif words == [".text"]:
            is_debugging = False
        if not is_debugging and not _LEFT_OUT.match(line.strip()):
            yield line


def _without_uncalled(lines: Sequence[str]) -> Iterator[str]:
    """Leave out weak functions that nothing here refers to: every module brings some."""
    weak = [match[1] for line in lines if (match := re.match(r"\s*\.weak\s+(\S+)", line))]
    uncalled = {
        name
        for name in weak
        if all(_is_of(line, name) for line in lines if name in _TOKEN.findall(line))
    }
    inside = ""
    for line in lines:
        match = re.match(r"\s*\.weak\s+(\S+)", line)
        if match and match[1] in uncalled:
            inside = match[1]
        if not inside:
            yield line
        elif re.match(rf"\s*\.size\s+{re.escape(inside)}\s*,", line):
            inside = ""


def _is_of(line: str, name: str) -> bool:
    """Whether a line that names a function is part of it."""
    directive = re.match(rf"\s*\.(weak|type|size)\s+{re.escape(name)}\b", line)
    return directive is not None or line.startswith(f"{name}:")


def _without_unused_sections(lines: Sequence[str]) -> Iterator[str]:
    """Leave out sections that are empty, or hold constants of which none is used."""
    used = _used(lines)
    starts = [i for i, line in enumerate(lines) if re.match(r"\s*\.(section|text)\b", line)]
    yield from lines[: starts[0]]
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        part = lines[start:end]
        labels = [match[1] for line in part if (match := _LOCAL.match(line))]
        is_note = ".note." in part[0]
        is_code = any(_DECLARED.match(line) for line in part)
        if is_note or is_code or used.intersection(labels):
            yield from part


def _used(lines: Sequence[str]) -> set[str]:
    """All names in lines that are no labels."""
    return {token for line in lines if not _LOCAL.match(line) for token in _TOKEN.findall(line)}


def renamed(text: str, rename: Callable[[str], str]) -> str:
    """Return the text with all symbols renamed, and those that it defines hidden."""
    lines = []
    for line in text.splitlines():
        lines.append(_TOKEN.sub(lambda match: rename(match[0]), line))
        if match := _DECLARED.match(lines[-1]):
            lines.append(f"\t.hidden\t{match[1]}")
    return "\n".join([*lines, ""])


def assembler_architecture(hardware: Hardware) -> str:
    """Return the architecture that lets an assembler take all instructions of kernels; "" where
    none has to be named: texts for 32-bit Arm do it themselves, and on x86-64 any are taken."""
    if hardware.architecture != "aarch64":
        return ""
    extensions = [_EXTENSIONS[name] for name in needed_features(hardware) if name in _EXTENSIONS]
    return "+".join(["armv8.2-a" if extensions else "armv8-a", *extensions])
