"""Renaming the symbols of objects."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hw.profile import Hardware
from stages.packaging.compiling.object_file import ObjectError, ObjectFile
from tests.stages.packaging.support import KERNELS, TARGETS, X86_64, compile_object

elffile = pytest.importorskip("elftools.elf.elffile", reason="needs the extra 'emulator'")


@pytest.mark.parametrize("hardware", TARGETS, ids=lambda item: item.name)
def test_every_visible_symbol_is_renamed_and_hidden(hardware: Hardware) -> None:
    before = compile_object(KERNELS, hardware)
    after = ObjectFile(before, "k.o").renamed(lambda name: f"a_much_longer_{name}", "".__eq__)
    old, new = (
        list(elffile.ELFFile(io.BytesIO(data)).get_section_by_name(".symtab").iter_symbols())
        for data in (before, after)
    )
    defined = set()
    for a, b in zip(old, new, strict=True):
        if a["st_info"]["bind"] == "STB_LOCAL":
            assert a.name == b.name
            continue
        assert b.name == f"a_much_longer_{a.name}"
        if a["st_shndx"] != "SHN_UNDEF":
            defined.add(a.name)
            assert b["st_other"]["visibility"] == "STV_HIDDEN"
    assert defined == {"look_up", "window", "divide", "add"}


@given(st.data())
def test_damaged_objects_are_refused(data: st.DataObject) -> None:
    whole = compile_object(KERNELS, X86_64)
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(ObjectError, match=r"k\.o"):
        ObjectFile(whole[:cut], "k.o")


def test_a_shared_library_is_no_object() -> None:
    data = bytearray(compile_object(KERNELS, X86_64))
    data[16] = 3
    with pytest.raises(ObjectError, match="no relocatable object"):
        ObjectFile(bytes(data), "k.o")
