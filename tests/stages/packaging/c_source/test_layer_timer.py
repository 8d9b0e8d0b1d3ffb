"""Layer times: what is emitted for them, and under which names."""

from __future__ import annotations

import ast
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hw.profile import Hardware
from stages.packaging.c_source.graph_source import graph_source
from stages.packaging.c_source.layer_timer import PUBLIC, c_string
from stages.packaging.files.header import header_source
from stages.packaging.program.arena import plan
from stages.packaging.program.kernel_program import Fallback
from stages.packaging.program.packed_constants import pack_constants
from tests.stages.packaging import golden_text
from tests.stages.packaging.profiled import profiled
from tests.stages.packaging.support import (
    AARCH64,
    ARMV7,
    TARGETS,
    X86_64,
    make_program,
    package,
    zig,
)

elffile = pytest.importorskip("elftools.elf.elffile", reason="needs the extra 'emulator'")


def test_what_is_emitted_is_as_agreed() -> None:
    program = make_program(AARCH64)
    text = graph_source(program, plan(program), pack_constants(program), AARCH64, True)
    golden_text.check("profiled_graph.c", text)
    golden_text.check("profiled_toy.h", header_source(make_program(ARMV7), "toy", ARMV7, True))


def test_the_header_compiles_alone(tmp_path: Path) -> None:
    (tmp_path / "toy.h").write_text(header_source(make_program(X86_64), "toy", X86_64, True))
    (tmp_path / "use.c").write_text('#include "toy.h"\nstruct toy_span span;\n')
    for compiler in ("cc", "c++"):
        flags = ("-x", "c++") if compiler == "c++" else ()
        zig(tmp_path, compiler, *flags, "-c", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "use.c")


@pytest.mark.parametrize("hardware", TARGETS, ids=lambda item: item.name)
def test_a_library_has_just_these_functions_more(hardware: Hardware) -> None:
    """Without layer times there is no trace of them; those of a package are other bytes alone."""
    without, built = package(hardware), profiled(hardware)
    tables = [
        elffile.ELFFile(io.BytesIO(files["libtoy.so"])).get_section_by_name(".dynsym")
        for files in (without, built)
    ]
    exported, more = (
        {item.name for item in table.iter_symbols() if item["st_shndx"] != "SHN_UNDEF"}
        for table in tables
    )
    assert more - exported == {f"toy_{function}" for function in PUBLIC}
    imports, wanted = (
        {item.name for item in table.iter_symbols() if item["st_shndx"] == "SHN_UNDEF"}
        for table in tables
    )
    assert wanted - imports == {"clock_gettime"}
    assert without.keys() == built.keys()
    changed = {name for name, data in built.items() if data != without[name]}
    texts = {"toy.h", "toy.py", "toy.cdx.json", "manifest.json"}
    assert changed == {"libtoy.so", "libtoy.a", "toy", *texts}
    for name in ("toy", "toy.py", "toy.h", "libtoy.so", "manifest.json"):
        assert b"profile" not in without[name] and b"PROFILE" not in without[name], name
    assert json.loads(built["manifest.json"])["profile"] is True


@given(st.text())
def test_names_survive_in_c(text: str) -> None:
    literal = c_string(text)
    assert literal.isascii() and literal.isprintable() and "??" not in literal
    kept = text.replace("\0", "\\0").encode("utf-8", "backslashreplace")
    assert ast.literal_eval(f"b{literal}") == kept


def test_the_kernel_is_the_one_that_runs() -> None:
    """Where the operating system refuses tiles, the other one."""
    made = make_program(X86_64)
    first, second, third, last = made.calls
    call = replace(third, fallback=Fallback("window", 8))
    program = replace(made, calls=(first, second, call, last))
    text = graph_source(program, plan(program), pack_constants(program), X86_64, True)
    own = "((const struct context *)context)"
    assert f'case 2: return {own}->tiles ? "divide" : "window";' in text
