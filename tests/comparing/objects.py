"""The functions and data of a package's static library, and how they read without their names.

A function is its machine code and what it refers to. Names are left out: instead of the name of
what a relocation refers to stands what that is, in turn, so that renamed kernels are equal and a
call of another kernel is not. Only names outside of the package stay, those of the C library.
"""

from __future__ import annotations

import hashlib
import io
import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from elftools.elf.elffile import ELFFile
from elftools.elf.relocation import RelocationSection
from elftools.elf.sections import SymbolTableSection

from tests.comparing.instructions import UnknownCodeError, split

_ROUNDS = 8
"""From how many calls away a difference changes a digest; packages call four levels deep."""
_ALLOCATED, _EXECUTABLE = 2, 4
_DIGEST = re.compile(r"_[0-9a-f]{12}(?=_|$)")
_ARCHITECTURES = {"EM_X86_64": "x86_64", "EM_AARCH64": "aarch64", "EM_ARM": "armv7"}

Place = tuple[int, int, int]
"""Object, section and offset in it."""


@dataclass(frozen=True)
class Reference:
    """A relocation: where in the unit, of which kind, how far off, and to what."""

    at: int
    kind: int
    addend: int
    target: Place | str
    """A place in the library, or the name of something outside of it."""


@dataclass
class Unit:
    """One function, or one section of data."""

    name: str
    is_code: bool
    content: bytes
    place: Place
    architecture: str
    data: tuple[tuple[int, int], ...] = ()
    """Where data stand between instructions, as the constants of 32-bit ARM do."""
    references: list[Reference] = field(default_factory=list)

    @property
    def title(self) -> str:
        """Its name without the digest of what it was made of."""
        return _DIGEST.sub("", self.name)

    def instructions(self) -> list[bytes] | None:
        """The instructions of a function, or None where they cannot be told apart."""
        try:
            return split(self.architecture, self.content, self.data)
        except UnknownCodeError:
            return None


@dataclass(frozen=True)
class Library:
    """All units of a static library, each with its digest without names."""

    units: tuple[tuple[Unit, str], ...]

    def functions(self) -> dict[str, tuple[Unit, str]]:
        """Functions by their names without digests; a number tells equal names apart."""
        found: dict[str, tuple[Unit, str]] = {}
        seen: Counter[str] = Counter()
        for unit, digest in self.units:
            if unit.is_code:
                seen[unit.title] += 1
                number = f" ({seen[unit.title]})" if seen[unit.title] > 1 else ""
                found[unit.title + number] = unit, digest
        return found

    def digests(self) -> Counter[str]:
        """The digests of all units, in no order."""
        return Counter(digest for _, digest in self.units)

    def instructions(self) -> int | None:
        """How many instructions all functions have, or None where one cannot be told apart."""
        total = 0
        for unit, _ in self.units:
            if unit.is_code:
                parts = unit.instructions()
                if parts is None:
                    return None
                total += len(parts)
        return total


def read(path: Path, package: str) -> Library:
    """The units of libPACKAGE.a at `path`."""
    objects = [_Object(i, data) for i, (_, data) in enumerate(members(path.read_bytes()))]
    defined: dict[str, Place] = {}
    for item in objects:
        for name, place in item.definitions():
            # Of a weak function each object has its own; the linker takes the first.
            defined.setdefault(name, place)
    own = re.compile(f"{re.escape(package)}_+")
    units = [unit for item in objects for unit in item.units(own, defined)]
    at: dict[tuple[int, int], list[Unit]] = defaultdict(list)
    for unit in units:
        at[unit.place[:2]].append(unit)
    for item in objects:
        for section, offset, make in item.relocations(defined):
            found = _at(at, (item.number, section, offset))
            if found is not None:
                found.references.append(make(offset - found.place[2]))
    return Library(tuple(zip(units, _digests(units, at), strict=True)))


def members(archive: bytes) -> Iterator[tuple[int, bytes]]:
    """The objects of an archive, each with the offset of its content."""
    at = 8
    while at < len(archive):
        size = int(archive[at + 48 : at + 58])
        data = archive[at + 60 : at + 60 + size]
        if data[:4] == b"\x7fELF":
            yield at + 60, data
        at += 60 + size + size % 2


class _Object:
    """One relocatable object of the archive."""

    def __init__(self, number: int, data: bytes) -> None:
        self.number = number
        elf = ELFFile(io.BytesIO(data))
        self._architecture = _ARCHITECTURES[elf["e_machine"]]
        self._sections = list(elf.iter_sections())
        tables = [item for item in self._sections if isinstance(item, SymbolTableSection)]
        self._symbols = list(tables[0].iter_symbols())

    def definitions(self) -> Iterator[tuple[str, Place]]:
        """What other objects can see, and where it is."""
        for symbol in self._symbols:
            place = self._place(symbol)
            if place is not None and symbol["st_info"]["bind"] != "STB_LOCAL":
                yield symbol.name, place

    def units(self, own: re.Pattern[str], defined: Mapping[str, Place]) -> Iterator[Unit]:
        """Its functions and sections of data, but for functions that the linker leaves out."""
        for index, section in enumerate(self._sections):
            if not section["sh_flags"] & _ALLOCATED or not section["sh_size"]:
                continue
            if not section["sh_flags"] & _EXECUTABLE:
                yield self._data(index, section)
                continue
            for symbol in self._functions(index):
                place = (self.number, index, symbol["st_value"] & ~1)
                if defined.get(symbol.name, place)[:2] == place[:2]:
                    yield self._function(section, symbol, place, own)

    def relocations(self, defined: Mapping[str, Place]) -> Iterator[tuple[int, int, Any]]:
        """Section, offset, and what makes the reference once the offset in its unit is known."""
        for section in self._sections:
            if not isinstance(section, RelocationSection):
                continue
            for item in section.iter_relocations():
                # Without a field of its own an addend lies in the code, and is compared there.
                addend = item["r_addend"] if item.is_RELA() else 0
                target = self._target(self._symbols[item["r_info_sym"]], defined)

                def make(
                    at: int,
                    kind: int = item["r_info_type"],
                    addend: int = addend,
                    target: Place | str = target,
                ) -> Reference:
                    return Reference(at, kind, addend, target)

                yield section["sh_info"], item["r_offset"], make

    def _target(self, symbol: Any, defined: Mapping[str, Place]) -> Place | str:
        if symbol["st_info"]["bind"] != "STB_LOCAL" and symbol.name in defined:
            return defined[symbol.name]
        return self._place(symbol) or symbol.name

    def _place(self, symbol: Any) -> Place | None:
        section = symbol["st_shndx"]
        return (self.number, section, symbol["st_value"]) if isinstance(section, int) else None

    def _functions(self, index: int) -> list[Any]:
        found = {
            symbol["st_value"]: symbol
            for symbol in self._symbols
            if symbol["st_shndx"] == index and symbol["st_info"]["type"] == "STT_FUNC"
        }
        return [found[value] for value in sorted(found)]

    def _function(self, section: Any, symbol: Any, place: Place, own: re.Pattern[str]) -> Unit:
        begin, end = place[2], place[2] + symbol["st_size"]
        return Unit(
            own.sub("", symbol.name, count=1),
            True,
            section.data()[begin:end],
            place,
            self._architecture,
            self._data_between(place[1], begin, end),
        )

    def _data(self, index: int, section: Any) -> Unit:
        has_content = section["sh_type"] != "SHT_NOBITS"
        content = section.data() if has_content else section["sh_size"].to_bytes(8, "little")
        place = (self.number, index, 0)
        return Unit(section.name, False, content, place, self._architecture)

    def _data_between(self, index: int, begin: int, end: int) -> tuple[tuple[int, int], ...]:
        """ARM's mapping symbols: $d before data, $a or $x before instructions."""
        marks = sorted(
            (symbol["st_value"], symbol.name[1])
            for symbol in self._symbols
            if symbol["st_shndx"] == index and re.match(r"\$[adx](\.|$)", symbol.name)
        )
        ends = [value for value, _ in marks[1:]] + [end]
        return tuple(
            (max(value, begin) - begin, min(until, end) - begin)
            for (value, kind), until in zip(marks, ends, strict=False)
            if kind == "d" and value < end and until > begin
        )


def _at(units: Mapping[tuple[int, int], Sequence[Unit]], place: Place) -> Unit | None:
    """The unit at a place; what lies between functions is padding and belongs to none."""
    here = units.get(place[:2], ())
    index = bisect_right(here, place[2], key=lambda unit: unit.place[2]) - 1
    if index < 0 or place[2] > here[index].place[2] + len(here[index].content):
        return None
    return here[index]


def _digests(units: Sequence[Unit], at: Mapping[tuple[int, int], Sequence[Unit]]) -> list[str]:
    """Digests of units: of content alone at first, then with what they refer to, in turn."""
    found = {
        unit.place: _digest(unit.is_code, hashlib.sha256(unit.content).hexdigest())
        for unit in units
    }
    for _ in range(_ROUNDS):
        found = {
            unit.place: _digest(
                found[unit.place],
                [_spelled(item, found, at) for item in sorted(unit.references, key=_order)],
            )
            for unit in units
        }
    return [found[unit.place] for unit in units]


def _order(reference: Reference) -> tuple[int, int, int]:
    return reference.at, reference.kind, reference.addend


def _spelled(
    item: Reference,
    digests: Mapping[Place, str],
    at: Mapping[tuple[int, int], Sequence[Unit]],
) -> tuple[object, ...]:
    if isinstance(item.target, str):
        return item.at, item.kind, item.addend, item.target
    unit = _at(at, item.target)
    if unit is None:
        return item.at, item.kind, item.addend, "padding"
    off = item.target[2] - unit.place[2]
    return item.at, item.kind, item.addend, off, digests[unit.place]


def _digest(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()
