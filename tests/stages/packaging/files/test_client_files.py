"""What lets others use a package: examples, files for pkg-config and CMake."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stages.options import PackageFormat
from stages.packaging.files.bill_of_materials import components, notice
from stages.packaging.files.client_files import client_files
from stages.packaging.program.kernel_program import TensorSpec
from tests.stages.packaging.files.clients import begins, compiling, imported, needs
from tests.stages.packaging.support import (
    AARCH64,
    TARGETS,
    X86_64,
    make_golden,
    package,
    zig,
)
from tests.targets import is_native

native = pytest.mark.skipif(not is_native(X86_64), reason="runs packages for x86-64 natively")


@native
def test_example_in_c_runs(folder: Path) -> None:
    golden = make_golden()
    zig(folder, *compiling(folder, "example.c"))
    (folder / "image").write_bytes(golden.inputs["image"][0].tobytes())
    printed = subprocess.run(
        [folder / "example", "image"], cwd=folder, capture_output=True, text=True, check=True
    )
    assert printed.stdout == begins(golden.outputs["scores */"][0], golden.outputs["levels"][0])
    assert subprocess.run([folder / "example"], check=False, capture_output=True).returncode == 0
    few = subprocess.run(
        [folder / "example", "toy.pc"], cwd=folder, capture_output=True, text=True, check=False
    )
    assert (few.returncode, few.stderr) == (2, "toy.pc does not hold 1003 bytes\n")


@native
def test_example_in_cpp_prints_what_that_in_c_does(folder: Path) -> None:
    """Zig would build its C++ library first, for a minute: this machine's compiler links it."""
    command = compiling(folder, "example.cpp")
    if not shutil.which("c++"):
        zig(folder, "c++", "-std=c++17", "-c", "-Wall", "-Werror", "example.cpp", "-o", "example.o")
        pytest.skip("c++ is not installed: the example was compiled, and not run")
    subprocess.run(command, cwd=folder, check=True)
    ran = subprocess.run([folder / "example"], capture_output=True, text=True, check=True)
    with imported(folder / "toy.py").Network() as net:
        outputs = net(np.zeros((1, 17, 59), np.uint8))
    assert ran.stdout == begins(outputs["scores */"], outputs["levels"])


@native
@needs("pkg-config")
@needs("cc")
def test_pkg_config_finds_the_package_wherever_it_lies(folder: Path) -> None:
    moved = folder.parent / "else where"
    shutil.copytree(folder, moved)
    environment = {**os.environ, "PKG_CONFIG_PATH": str(moved)}
    for more in ([], ["--static"]):
        done = subprocess.run(
            ["pkg-config", *more, "--cflags", "--libs", "toy"],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        assert ("-pthread" in done.stdout) == bool(more)
        line = f"cc example.c {done.stdout.strip()} -Wl,-rpath,'$ORIGIN' -o example"
        subprocess.run(["sh", "-c", line], cwd=moved, check=True)
        subprocess.run([moved / "example"], capture_output=True, check=True)


@native
@needs("cmake")
@needs("cc")
def test_cmake_finds_the_package(folder: Path) -> None:
    project = folder.parent / "project"
    project.mkdir()
    (project / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.13)\nproject(p C)\n"
        f'find_package(toy CONFIG REQUIRED PATHS "{folder}")\n'
        "foreach(kind shared static)\n"
        f'add_executable(${{kind}}_one "{folder}/example.c")\n'
        "target_link_libraries(${kind}_one toy::${kind})\nendforeach()\n"
    )
    out = str(project / "out")
    for words in (["-S", str(project), "-B", out], ["--build", out]):
        done = subprocess.run(["cmake", *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    ran = [
        subprocess.run([project / "out" / f"{kind}_one"], capture_output=True, check=True).stdout
        for kind in ("shared", "static")
    ]
    assert ran[0] == ran[1] and ran[0].startswith(b"out_0:")


USING = {"toy.pc", "toyConfig.cmake", "example.c", "example.cpp"}


@pytest.mark.parametrize(
    ("formats", "more"),
    [
        (("executable",), set()),
        (("static",), USING),
        (("shared",), {*USING, "toy.py"}),
        (("static", "executable"), USING),
        (("shared", "static", "executable"), {*USING, "toy.py"}),
    ],
)
def test_files_are_those_the_formats_have_a_use_for(
    formats: tuple[PackageFormat, ...], more: set[str]
) -> None:
    spec = TensorSpec("a", "float32", (1,))
    files = {n: d.decode() for n, d in client_files("toy", [], [spec], AARCH64, formats).items()}
    assert files.keys() == more
    found = components("toy", formats, AARCH64, {"ziglang": "1"})
    files["NOTICE"] = notice(found)
    assert ("LGPL" in files["NOTICE"] or "Lesser" in files["NOTICE"]) == ("executable" in formats)
    for library, format_ in (("libtoy.so", "shared"), ("libtoy.a", "static")):
        assert (library in files["NOTICE"]) == (format_ in formats)
        if more:
            assert (library in files["toyConfig.cmake"]) == (format_ in formats)
    for name, text in files.items():
        assert not re.search(r"@[A-Z]+@", text), name


@pytest.mark.parametrize("hardware", TARGETS, ids=lambda item: item.name)
def test_manifest_lists_them_with_their_hashes(hardware: Any) -> None:
    files = package(hardware)
    listed = json.loads(files["manifest.json"])["files"]
    assert listed.keys() == files.keys() - {"manifest.json"}
    for name, entry in listed.items():
        assert entry["sha256"] == hashlib.sha256(files[name]).hexdigest()
