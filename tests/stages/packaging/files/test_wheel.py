"""A package as a wheel."""

from __future__ import annotations

import base64
import email
import hashlib
import io
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from pipelines.documents.board_files import list_boards, load_board
from pipelines.recipe.overrides import span
from stages.kinds import Files
from stages.options import PackageOptions
from stages.packaging.files.wheel import tag
from tests.stages.packaging.files.test_client_files import native
from tests.stages.packaging.files.test_loader import assert_golden_without_bitkiln
from tests.stages.packaging.support import (
    X86_64,
    assembled,
    make_golden,
    make_program,
)


def wheel_of(version: str | None = None) -> tuple[str, bytes, Files]:
    """Name and content of a wheel, and the package that it is of."""
    files = assembled(
        program=make_program(X86_64),
        golden=make_golden(),
        options=PackageOptions(name="toy", formats=("shared", "wheel"), version=version),
        hardware=X86_64,
        provenance={},
    )
    (name,) = (name for name in files if name.endswith(".whl"))
    return name, files[name], files


@native
def test_pip_installs_the_wheel(tmp_path: Path) -> None:
    name, data, files = wheel_of()
    (tmp_path / name).write_bytes(data)
    place = tmp_path / "site"
    pip = [sys.executable, "-m", "pip", "install", "--no-index", "--no-deps", "--no-compile"]
    done = subprocess.run(
        [*pip, "--target", str(place), str(tmp_path / name)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (place / "toy" / "libtoy.so").read_bytes() == files["libtoy.so"]
    assert_golden_without_bitkiln(place)


def test_a_wheel_is_as_its_record_and_its_name_say() -> None:
    packaging = pytest.importorskip("packaging.utils")
    name, data, files = wheel_of("1.4.2rc1")
    distribution, version, _, tags = packaging.parse_wheel_filename(name)
    assert (distribution, str(version)) == ("toy", "1.4.2rc1")
    assert {str(tag) for tag in tags} == {"py3-none-manylinux_2_28_x86_64"}
    with zipfile.ZipFile(io.BytesIO(data)) as wheel:
        assert wheel.testzip() is None
        about = "toy-1.4.2rc1.dist-info"
        entries = {item.filename: wheel.read(item) for item in wheel.infolist()}
        modes = {i.filename: i.external_attr >> 16 & 0o777 for i in wheel.infolist()}
    lines = [line.split(",") for line in entries[f"{about}/RECORD"].decode().splitlines()]
    assert {line[0] for line in lines} == entries.keys()
    for file, digest, size in lines:
        if file != f"{about}/RECORD":
            coded = base64.urlsafe_b64encode(hashlib.sha256(entries[file]).digest())
            assert digest == f"sha256={coded.decode().rstrip('=')}"
            assert int(size) == len(entries[file])
    assert {name for name, mode in modes.items() if mode != 0o644} == {"toy/libtoy.so"}
    told = email.message_from_bytes(entries[f"{about}/METADATA"])
    assert (told["Name"], told["Version"], told["Requires-Dist"]) == ("toy", "1.4.2rc1", "numpy")
    assert entries[f"{about}/licenses/NOTICE"] == files["NOTICE"]
    assert entries[f"{about}/sboms/toy.cdx.json"] == files["toy.cdx.json"]


@pytest.mark.parametrize("board", list_boards())
def test_every_board_has_a_tag_that_pip_knows(board: str) -> None:
    tags = pytest.importorskip("packaging.tags")
    found = load_board(board, span("hardware", board), [])
    assert found is not None
    machine = {"armv7": "armv7l"}.get(found.architecture, found.architecture)
    assert re.fullmatch(rf"manylinux_2_\d+_{machine}", tag(found))
    if found.architecture == "x86_64" and board != "host" and sys.platform == "linux":
        assert tag(found) in {each.platform for each in tags.sys_tags()}


@pytest.mark.parametrize("version", ["1", "0.0.1", "2.0rc1", "1.0.post2", "1.0a1.dev3", "10.20.30"])
def test_versions_are_as_pip_writes_them(version: str) -> None:
    packaging = pytest.importorskip("packaging.version")
    assert PackageOptions(name="toy", version=version).version == version
    assert str(packaging.Version(version)) == version


@pytest.mark.parametrize("version", ["", "v1", "1.0-1", "01", "1.0 ", "1/2", "1.0+x", "latest"])
def test_what_is_no_version(version: str) -> None:
    with pytest.raises(ValueError, match=r"is no version; write numbers, such as 1\.4\.2"):
        PackageOptions(name="toy", version=version)


def test_a_wheel_needs_the_library() -> None:
    with pytest.raises(ValueError, match=r"a wheel holds the shared library; write \[shared, "):
        PackageOptions(name="toy", formats=("static", "wheel"))
