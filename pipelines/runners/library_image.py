"""A package's shared library as it lies in an emulated processor's memory: loaded and relocated."""

from __future__ import annotations

import io
from dataclasses import dataclass

from pipelines.errors import UserError
from pipelines.runners.emulated_processor import IMPORTS, LIBRARY, missing_extra
from pipelines.runners.package import Package

# Relocation types by what they mean here: add the base, or the address of a symbol.
RELOCATIONS = {
    "aarch64": {1027: "base", 257: "symbol", 1025: "symbol", 1026: "symbol"},
    "armv7": {23: "base", 2: "symbol", 21: "symbol", 22: "symbol"},
}


@dataclass(frozen=True)
class LibraryImage:
    """A library as it lies in memory at LIBRARY, relocated."""

    data: bytes
    symbols: dict[str, int]
    imports: tuple[str, ...]


def read_library(package: Package) -> LibraryImage:
    """Return the image of a library; UserError if it is damaged, or pyelftools is missing."""
    try:
        from elftools.common.exceptions import ELFError
        from elftools.elf.elffile import ELFFile
        from elftools.elf.relocation import RelocationSection
    except ImportError as error:
        raise missing_extra() from error
    path = package.library()
    try:
        elf = ELFFile(io.BytesIO(path.read_bytes()))
        loads = [item for item in elf.iter_segments() if item["p_type"] == "PT_LOAD"]
        data = bytearray(max(item["p_vaddr"] + item["p_memsz"] for item in loads))
        for item in loads:
            data[item["p_vaddr"] : item["p_vaddr"] + item["p_filesz"]] = item.data()
        table = list(elf.get_section_by_name(".dynsym").iter_symbols())
        imports = tuple(item.name for item in table if item["st_shndx"] == "SHN_UNDEF")
        addresses = [
            IMPORTS + 16 * imports.index(item.name)
            if item["st_shndx"] == "SHN_UNDEF"
            else LIBRARY + item["st_value"]
            for item in table
        ]
        width = elf.elfclass // 8
        for section in elf.iter_sections():
            if isinstance(section, RelocationSection) and section["sh_flags"] & 2:
                for item in section.iter_relocations():
                    at = item["r_offset"]
                    stored = int.from_bytes(data[at : at + width], "little")
                    addend = item["r_addend"] if item.is_RELA() else stored
                    meaning = RELOCATIONS[package.architecture].get(item["r_info_type"])
                    if meaning is None:
                        raise UserError(
                            f"{path} needs relocation {item['r_info_type']}, which no package has"
                        )
                    if meaning == "base":
                        value = LIBRARY + addend
                    else:
                        # A REL jump slot holds the address of its lazy stub, no addend.
                        lazy = not item.is_RELA() and item["r_info_type"] != 2
                        value = addresses[item["r_info_sym"]] + (0 if lazy else addend)
                    data[at : at + width] = value.to_bytes(width, "little")
    except (ELFError, ValueError, AttributeError, KeyError, IndexError) as error:
        raise UserError(f"{path} is damaged ({error}); build it again") from error
    symbols = dict(zip((item.name for item in table), addresses, strict=True))
    return LibraryImage(bytes(data), symbols, imports)
