"""Renames and hides the symbols of relocatable ELF objects, so that packages never collide."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

SHT_SYMTAB = 2
STB_LOCAL, STB_WEAK = 0, 2
STV_DEFAULT, STV_HIDDEN = 0, 2
STV_MASK = 3


class ObjectError(ValueError):
    """Bytes that are no relocatable ELF object this packager can read."""


@dataclass(frozen=True)
class Symbol:
    """A named symbol that other objects can see, and where its entry stands in the file."""

    name: str
    is_defined: bool
    is_weak: bool
    entry: int


@dataclass(frozen=True)
class _Layout:
    """The parts of an ELF class that differ: field offsets within headers, and their width."""

    section_offset: int
    header_count: int
    header_size: int
    word: str
    offset_at: int
    size_at: int
    link_at: int
    symbol_size: int
    info_at: int
    other_at: int
    index_at: int


_CLASSES = {
    1: _Layout(32, 48, 40, "<I", 16, 20, 24, 16, 12, 13, 14),
    2: _Layout(40, 60, 64, "<Q", 24, 32, 40, 24, 4, 5, 6),
}


class ObjectFile:
    """The symbol table of one little-endian relocatable ELF object, 32 or 64 bits."""

    def __init__(self, data: bytes, name: str) -> None:
        if data[:4] != b"\x7fELF" or data[5:6] != b"\1" or data[4] not in _CLASSES:
            raise ObjectError(f"{name} is no little-endian ELF object")
        self.data = data
        self.name = name
        self._layout = _CLASSES[data[4]]
        try:
            if self._short(16) != 1:
                raise ObjectError(f"{name} is an ELF file, but no relocatable object")
            self._read_symbols()
        except (struct.error, IndexError, ValueError) as error:
            raise ObjectError(f"{name} is damaged: {error}") from error

    def renamed(self, rename: Callable[[str], str], is_public: Callable[[str], bool]) -> bytes:
        """Return the object with every visible symbol renamed; defined ones hidden unless public.

        `is_public` is asked about the new name. New names are appended as a new string table, so
        no relocation, section or local symbol changes.
        """
        layout = self._layout
        strings = bytearray(self._section_data(self._strings))
        out = bytearray(self.data)
        for symbol in self.symbols:
            name = rename(symbol.name)
            struct.pack_into("<I", out, symbol.entry, len(strings))
            strings += name.encode() + b"\0"
            if symbol.is_defined:
                visibility = STV_DEFAULT if is_public(name) else STV_HIDDEN
                other = symbol.entry + layout.other_at
                out[other] = out[other] & ~STV_MASK | visibility
        header = self._header(self._strings)
        out += b"\0" * (-len(out) % 8)
        struct.pack_into(layout.word, out, header + layout.offset_at, len(out))
        struct.pack_into(layout.word, out, header + layout.size_at, len(strings))
        return bytes(out + strings)

    def _read_symbols(self) -> None:
        layout = self._layout
        if self._header(self._short(layout.header_count)) > len(self.data):
            raise ValueError("its section headers are cut off")
        tables = [
            index
            for index in range(self._short(layout.header_count))
            if self._long(self._header(index) + 4) == SHT_SYMTAB
        ]
        if len(tables) != 1:
            raise ObjectError(f"{self.name} has {len(tables)} symbol tables, not one")
        self._strings = self._long(self._header(tables[0]) + layout.link_at)
        strings = self._section_data(self._strings)
        start, size = self._extent(tables[0])
        self.symbols: list[Symbol] = []
        for entry in range(start, start + size, layout.symbol_size):
            at = self._long(entry)
            name = strings[at : strings.index(b"\0", at)].decode()
            binding = self.data[entry + layout.info_at] >> 4
            if binding != STB_LOCAL and name:
                is_defined = self._short(entry + layout.index_at) != 0
                self.symbols.append(Symbol(name, is_defined, binding == STB_WEAK, entry))

    def _short(self, at: int) -> int:
        value: int = struct.unpack_from("<H", self.data, at)[0]
        return value

    def _long(self, at: int) -> int:
        value: int = struct.unpack_from("<I", self.data, at)[0]
        return value

    def _word(self, at: int) -> int:
        value: int = struct.unpack_from(self._layout.word, self.data, at)[0]
        return value

    def _header(self, index: int) -> int:
        return self._word(self._layout.section_offset) + index * self._layout.header_size

    def _extent(self, index: int) -> tuple[int, int]:
        header = self._header(index)
        return (
            self._word(header + self._layout.offset_at),
            self._word(header + self._layout.size_at),
        )

    def _section_data(self, index: int) -> bytes:
        start, size = self._extent(index)
        return self.data[start : start + size]
