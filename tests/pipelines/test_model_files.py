"""Which files a model consists of, by their names."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.errors import UserError
from pipelines.recipe import model_files


def touch(folder: Path, *names: str) -> list[Path]:
    for name in names:
        (folder / name).write_bytes(name.encode())
    return [folder / name for name in names]


def test_a_file_of_one_part_is_read_as_it_is(tmp_path: Path) -> None:
    (net,) = touch(tmp_path, "net.tflite")
    assert model_files.parts(net) == (net,)
    assert model_files.read(net) == b"net.tflite"


def test_parameters_of_epoch_0_come_first_else_the_only_ones(tmp_path: Path) -> None:
    symbol, late = touch(tmp_path, "a-symbol.json", "a-0007.params")
    touch(tmp_path, "b-0000.params")
    assert model_files.parts(symbol) == (symbol, late)
    (first,) = touch(tmp_path, "a-0000.params")
    assert model_files.parts(symbol) == (symbol, first)


def test_several_parameter_files_want_a_decision(tmp_path: Path) -> None:
    symbol, *_ = touch(tmp_path, "a-symbol.json", "a-0007.params", "a-0008.params")
    with pytest.raises(UserError, match=r"a-0007\.params, a-0008\.params lie beside it; name the"):
        model_files.parts(symbol)


def test_a_symbol_without_parameters_is_complete(tmp_path: Path) -> None:
    (symbol,) = touch(tmp_path, "a-symbol.json")
    assert model_files.parts(symbol) == (symbol,)


@pytest.mark.parametrize(
    ("name", "stem"),
    [("a-symbol.json", "a"), ("net.v2.tflite", "net.v2"), ("n.pt2", "n"), ("n.onnx", "n")],
)
def test_names_of_models(name: str, stem: str) -> None:
    assert model_files.is_accepted(Path(name)) and model_files.stem(Path(name)) == stem


@pytest.mark.parametrize("name", ["a.json", "a.params", "a.pt", "a.onnx.txt", "symbol.json"])
def test_names_of_other_files(name: str) -> None:
    assert not model_files.is_accepted(Path(name))


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"none\.tflite: No such file or directory"):
        model_files.read(tmp_path / "none.tflite")
