"""Whole packages: what the files contain, import, export and weigh."""

from __future__ import annotations

import hashlib
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hw.profile import Hardware
from stages.errors import StageError
from stages.kinds import Files
from stages.options import PackageOptions
from stages.packaging.c_source.graph_source import PUBLIC
from tests.stages.packaging.support import (
    AARCH64,
    TARGETS,
    X86_64,
    assembled,
    compile_object,
    make_golden,
    make_program,
    package,
)

elffile = pytest.importorskip("elftools.elf.elffile", reason="needs the extra 'emulator'")

every_target = pytest.mark.parametrize("hardware", TARGETS, ids=lambda item: item.name)


def library(files: Files) -> Any:
    return elffile.ELFFile(io.BytesIO(files["libtoy.so"]))


@every_target
def test_a_library_imports_nothing_but_libc_and_threads(hardware: Hardware) -> None:
    elf = library(package(hardware))
    table = list(elf.get_section_by_name(".dynsym").iter_symbols())
    imported = {item.name for item in table if item["st_shndx"] == "SHN_UNDEF" and item.name}
    libc = {"getauxval", "getpid", "mmap", "munmap", "madvise"}
    assert {name for name in imported if not name.startswith("pthread_")} <= libc
    needed = {tag.needed for tag in elf.get_section_by_name(".dynamic").iter_tags("DT_NEEDED")}
    assert needed <= {"libc.so.6", "libpthread.so.0"}


@every_target
@pytest.mark.parametrize("name", ["libtoy.so", "toy"])
def test_glibc_2_28_is_new_enough(hardware: Hardware, name: str) -> None:
    elf = elffile.ELFFile(io.BytesIO(package(hardware)[name]))
    versions = {
        version.name
        for _, auxiliaries in elf.get_section_by_name(".gnu.version_r").iter_versions()
        for version in auxiliaries
    }
    numbers = [tuple(map(int, item.removeprefix("GLIBC_").split("."))) for item in versions]
    assert numbers and max(numbers) <= (2, 28)


@pytest.mark.parametrize("name", ["libtoy.so", "toy"])
def test_it_loads_with_pages_of_16_kib(name: str) -> None:
    """As the kernel of a Raspberry Pi 5 has them, and with those of 64 KiB of servers."""
    elf = elffile.ELFFile(io.BytesIO(package(AARCH64)[name]))
    loads = [item for item in elf.iter_segments() if item["p_type"] == "PT_LOAD"]
    assert loads and all(item["p_align"] >= 1 << 16 for item in loads)
    assert all((item["p_vaddr"] - item["p_offset"]) % (1 << 16) == 0 for item in loads)


@every_target
def test_a_library_exports_its_interface_alone(hardware: Hardware) -> None:
    table = library(package(hardware)).get_section_by_name(".dynsym").iter_symbols()
    exported = {item.name for item in table if item["st_shndx"] != "SHN_UNDEF"}
    assert exported == {f"toy_{function}" for function in PUBLIC}


@every_target
def test_a_library_has_no_writable_memory(hardware: Hardware) -> None:
    elf = library(package(hardware))
    writable = {item.name for item in elf.iter_sections() if item["sh_flags"] & 1}
    assert writable <= {".dynamic", ".got", ".got.plt", ".data.rel.ro", ".relro_padding"}
    relro = next(item for item in elf.iter_segments() if item["p_type"] == "PT_GNU_RELRO")
    for item in elf.iter_segments():
        if item["p_type"] == "PT_LOAD" and item["p_flags"] & 2:
            assert relro["p_vaddr"] <= item["p_vaddr"]
            assert item["p_vaddr"] + item["p_filesz"] <= relro["p_vaddr"] + relro["p_memsz"]


def test_the_runtime_is_small() -> None:
    """The whole library with four tiny kernels, stripped, stays under 32 KiB."""
    assert len(package(AARCH64)["libtoy.so"]) < 32 * 1024


@every_target
def test_two_builds_give_identical_bytes(
    hardware: Hardware, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = package(hardware)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    package.cache_clear()
    second = package(hardware)
    assert first == second
    for name, data in second.items():
        assert str(tmp_path).encode() not in data, name
        assert b"/bitkiln-" not in data and b"/tmp/" not in data, name


def test_formats_are_built_on_request_and_share_their_bytes() -> None:
    everything = package(AARCH64)
    using = {
        "NOTICE",
        "toy.cdx.json",
        "toy.py",
        "toy.pc",
        "toyConfig.cmake",
        "example.c",
        "example.cpp",
    }
    assert set(everything) == {
        *("golden.bin", "manifest.json", "toy.h", "libtoy.so", "libtoy.a", "toy", *using),
    }
    shared = assembled(
        program=make_program(AARCH64),
        golden=make_golden(),
        options=PackageOptions(name="toy", formats=("shared",)),
        hardware=AARCH64,
        provenance={},
    )
    assert set(shared) == {"golden.bin", "manifest.json", "toy.h", "libtoy.so", *using}
    assert shared["libtoy.so"] == everything["libtoy.so"]


@every_target
def test_the_manifest_says_what_the_package_is(hardware: Hardware) -> None:
    files = package(hardware)
    manifest = json.loads(files["manifest.json"])
    assert manifest["inputs"] == [
        {
            "name": "image",
            "dtype": "uint8",
            "shape": [1, 17, 59],
            "bytes": 1003,
            "quantization": {"scale": 0.5, "zero_point": 3},
        }
    ]
    assert [layer["kernel"] for layer in manifest["layers"]] == [
        *("look_up", "window", "divide", "add"),
    ]
    assert manifest["target"]["architecture"] == hardware.architecture
    assert manifest["provenance"] == {"recipe": "toy"}
    assert manifest["memory"]["scratch_bytes_per_thread"] == 65536
    assert manifest["files"] == {
        name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        for name, data in files.items()
        if name != "manifest.json"
    }


def test_a_kernel_that_needs_libc_is_refused() -> None:
    source = "int puts(const char *); void f(void *y) { puts(y); }"
    program = make_program(X86_64)
    objects = {**program.objects, "bad.o": compile_object(source, X86_64)}
    with pytest.raises(StageError, match=r"bad\.o refers to puts, which neither"):
        build(replace(program, objects=objects))


def test_two_kernels_of_one_name_are_refused() -> None:
    program = make_program(X86_64)
    twice = {**program.objects, "more.o": program.objects["kernels.o"]}
    with pytest.raises(StageError, match=r"kernels\.o and more\.o both define look_up"):
        build(replace(program, objects=twice))


def test_weak_helpers_may_come_with_every_kernel() -> None:
    program = make_program(X86_64)
    helper = "__attribute__((weak, noinline)) int helper(int x) { return x + 1; }"
    more = {
        f"{name}.o": compile_object(f"{helper} int {name}(int x) {{ return helper(x); }}", X86_64)
        for name in ("one", "two")
    }
    files = build(replace(program, objects={**program.objects, **more}))
    assert "libtoy.so" in files


@every_target
def test_a_kernel_may_call_rounding_functions(hardware: Hardware) -> None:
    program = make_program(hardware)
    source = "float rintf(float); double floor(double); void f(float *y) { *y = rintf(floor(*y)); }"
    more = {"more.o": compile_object(source, hardware)}
    files = build(replace(program, objects={**program.objects, **more}), hardware)
    assert "libtoy.so" in files


def test_a_missing_kernel_is_refused() -> None:
    program = make_program(X86_64)
    objects = {"other.o": compile_object("void other(void) {}", X86_64)}
    with pytest.raises(StageError, match=r"package\.o refers to look_up"):
        build(replace(program, objects=objects))


def build(program: object, hardware: Hardware = X86_64) -> Files:
    return assembled(
        program=program,
        golden=make_golden(),
        options=PackageOptions(name="toy", formats=("shared",)),
        hardware=hardware,
        provenance={},
    )
