"""Packages as text: what other compilers make of them gives the golden outputs."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import pytest

from pipelines.runners import open_package
from pipelines.runners.package import Package
from pipelines.runners.replay import qemu_prefix, read_replay
from stages.packaging.c_source.graph_source import PUBLIC
from stages.packaging.compiling.linker import _COMPILER_RT, _LIBC, default_cache
from stages.packaging.compiling.object_file import ObjectFile
from stages.packaging.files.source_folder import FOLDER
from tests.comparing.objects import members
from tests.pipelines.test_front_door import BLOCK, ROOT, doit
from tests.stages.packaging import golden_text
from tests.stages.packaging.support import zig

elffile = pytest.importorskip("elftools.elf.elffile", reason="needs the extra 'emulator'")
make = pytest.mark.skipif(not shutil.which("make"), reason="make is not installed")
SYSTEMS = {"rpi3": "aarch64-linux-gnu", "rpi3_armv7": "arm-linux-gnueabihf"}
GCC = {"host": "gcc", **{board: f"{system}-gcc" for board, system in SYSTEMS.items()}}


def built(folder: Path, recipe: str, hardware: str, formats: str = "source") -> Package:
    """A package in a folder of its own; that doit ended well says that it was verified."""
    fields = (f"hardware={hardware}", "package.name=net", f"package.formats=[{formats}]")
    output = doit(ROOT, "build", f"recipe={recipe}", *fields)
    assert re.search(r"^verifying .*(2 golden samples exact|cached)", output, re.MULTILINE)
    published = re.search(r"^publishing\s+\w+\s+(\S+)$", output, re.MULTILINE)
    assert published
    return open_package(shutil.copytree(ROOT / published[1], folder / "package"))


def made(package: Package, compiler: str, *flags: str) -> Path:
    """What `make` leaves, by some C compiler."""
    folder = package.folder / FOLDER
    command = ["make", "-s", f"CC={compiler}", *flags]
    caches = {
        "ZIG_GLOBAL_CACHE_DIR": str(default_cache()),
        "ZIG_LOCAL_CACHE_DIR": str(folder / "zig-cache"),
    }
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **caches},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0 and not done.stderr, done.stderr
    return folder


def assert_equal(package: Package, program: Path, prefix: tuple[str, ...] = ()) -> None:
    """Fail unless a program gives the golden outputs, with two threads."""
    command = [*prefix, str(program), "--threads", "2", str(package.folder / "golden.bin")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    said = read_replay("net", done.returncode, done.stdout, done.stderr)
    assert said.is_equal and said.samples == 2


def assert_own(folder: Path) -> None:
    """Fail if the library shows more than its interface, or an object defines a name without the
    package's prefix, or refers to one that neither libc's threads nor a compiler's support library
    has."""
    public = {f"net_{function}" for function in PUBLIC}
    elf = elffile.ELFFile(BytesIO((folder / "libnet.so").read_bytes()))
    table = elf.get_section_by_name(".dynsym").iter_symbols()
    shown = {item.name for item in table if item["st_shndx"] != "SHN_UNDEF"}
    assert {name for name in shown if re.match("[a-z]", name)} == public  # linkers mark ends
    archive = (folder / "libnet.a").read_bytes()
    objects = [ObjectFile(data, "") for _, data in members(archive)]
    defined = {s.name for item in objects for s in item.symbols if s.is_defined}
    assert public < defined
    assert all(name in public or name.startswith("net__") for name in defined)
    wanted = {s.name for item in objects for s in item.symbols} - defined
    assert all(_LIBC.fullmatch(n) or _COMPILER_RT.fullmatch(n) for n in wanted), wanted


@make
@pytest.mark.parametrize("hardware", GCC)
def test_gcc_makes_a_package_of_it(
    hardware: str, tmp_path: Path, alone: Callable[[str], str]
) -> None:
    if not shutil.which(GCC[hardware]):
        pytest.skip(f"{GCC[hardware]} is not installed")
    package = built(tmp_path, alone(BLOCK), hardware)
    folder = made(package, GCC[hardware])
    assert_own(folder)
    if hardware == "host":
        assert_equal(package, folder / "net")
    elif prefix := qemu_prefix(package.architecture):
        assert_equal(package, folder / "net", prefix)


@make
@pytest.mark.parametrize("board", SYSTEMS)
def test_zig_makes_a_package_of_it(board: str, tmp_path: Path, alone: Callable[[str], str]) -> None:
    package = built(tmp_path, alone(BLOCK), board)
    compiler = f"{sys.executable} -m ziglang"
    # As packages are linked: the C compiler builds its support libraries once per such choice.
    target = package.manifest["target"]
    called = f"{compiler} cc -target {target['system']} -mcpu={target['system_cpu']}"
    folder = made(package, called, f"AR={compiler} ar", "CFLAGS=-O2 -fno-sanitize=all")
    assert_own(folder)
    if (prefix := qemu_prefix(package.architecture)) is None:
        pytest.skip("needs qemu-user and a C library for the board")
    assert_equal(package, folder / "net", prefix)


def test_its_files_are_named_in_the_manifest_and_say_nothing_of_this_machine(
    tmp_path: Path, alone: Callable[[str], str]
) -> None:
    package = built(tmp_path, alone(BLOCK), "rpi3")
    files = {p.relative_to(package.folder).as_posix() for p in package.folder.rglob("*.*")}
    assert set(package.manifest["files"]) | {"manifest.json"} == files | {"NOTICE"} | {
        f"{FOLDER}/Makefile"
    }
    assert not any(name.endswith((".so", ".a", ".py", ".pc")) for name in files)
    golden_text.check("Makefile", (package.folder / FOLDER / "Makefile").read_text())
    licences = "The runtime in source/, the graph around the kernels, net.h\nand this file are of"
    assert licences in (package.folder / "NOTICE").read_text()
    texts = [p for p in (package.folder / FOLDER).rglob("*") if p.suffix in (".c", ".h", ".s")]
    assert any(p.parent.name == "kernels" for p in texts)
    for path in texts:
        text = path.read_text()
        assert str(ROOT) not in text and "/tmp" not in text and ".debug" not in text, path
        if path.suffix != ".s" and path.name != "net.h":
            assert "SPDX-License-Identifier: Apache-2.0" in text


def test_libraries_beside_it_are_made_of_it(tmp_path: Path, alone: Callable[[str], str]) -> None:
    """Formats combine; all of them hold the same kernels."""
    package = built(tmp_path, alone(BLOCK), "rpi3", "shared,static,source")
    assert package.manifest["formats"] == ["shared", "static", "source"]
    zig(tmp_path, "cc", "-target", SYSTEMS["rpi3"], "-c", *_kernels(package), "-o", "kernels.o")
    own = {s.name for s in ObjectFile((tmp_path / "kernels.o").read_bytes(), "").symbols}
    archive = package.file("libnet.a").read_bytes()
    there = {s.name for _, data in members(archive) for s in ObjectFile(data, "").symbols}
    assert {call["kernel"] for call in package.manifest["layers"]}
    assert {f"net__{call['kernel']}" for call in package.manifest["layers"]} <= own & there
    assert json.loads((package.folder / "manifest.json").read_text()) == package.manifest


def _kernels(package: Package) -> list[str]:
    return sorted(str(path) for path in (package.folder / FOLDER / "kernels").glob("*.s"))
