"""Files that `json=`, `junit=` and `out=` name: whole or as they were, and only where asked."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pipelines.errors import UserError
from pipelines.output import out_files
from pipelines.store import atomic


def test_a_file_is_replaced_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, link = tmp_path / "a.json", tmp_path / "link.json"
    link.symlink_to(path)
    assert out_files.write("json", str(path), b"first") == path
    assert out_files.write("json", str(link), b"second") == link
    assert path.read_bytes() == b"second" and link.is_symlink()

    def full(source: Path, target: Path) -> None:
        raise OSError(28, "No space left on device", str(target))

    monkeypatch.setattr(atomic, "move", full)
    with pytest.raises(UserError, match=r"json=.*a.json: cannot write it: No space left"):
        out_files.write("json", str(path), b"third")
    assert path.read_bytes() == b"second"
    assert {found.name for found in tmp_path.iterdir()} == {"a.json", "link.json"}


@pytest.mark.parametrize(
    ("name", "why"),
    [("no/a.xml", "No such file"), ("file/a.xml", "Not a directory"), (".", "Is a directory")],
)
def test_no_folder_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, why: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=f"^junit={name}: cannot write it: {why}"):
        out_files.write("junit", name, b"")
    assert [found.name for found in tmp_path.iterdir()] == ["file"]


def test_a_pipe_is_written_into(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    out_files.write("json", str(pipe), b"told")
    assert os.read(reader, 9) == b"told" and pipe.is_fifo()
    os.close(reader)
