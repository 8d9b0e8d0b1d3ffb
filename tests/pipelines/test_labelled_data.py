"""Labelled data: folders of pictures with labels.csv, and archives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pipelines.errors import UserError
from pipelines.evaluation import labelled_data
from pipelines.recipe.sections import InputSpec
from tests.pipelines.test_input_samples import PIXELS


def folder_of_pictures(folder: Path, labels: str) -> Path:
    for index in range(3):
        Image.fromarray(np.full((2, 2, 3), 50 * index, np.uint8)).save(folder / f"n{index}.png")
    (folder / "labels.csv").write_text(labels)
    return folder


def test_a_labelled_folder(tmp_path: Path) -> None:
    data = labelled_data.read(folder_of_pictures(tmp_path, "n2.png,7\n\nn0.png, 3\n"))
    assert data.labels == (7, 3) and len(data) == 2 and data.name(0) == "n2.png"
    sample = data.read(0, PIXELS, InputSpec(scale=1.0))
    assert sample.shape == (1, 3, 2, 2) and (sample == 100).all()


def test_a_labelled_archive(tmp_path: Path) -> None:
    path = tmp_path / "d.npz"
    np.savez(path, x=np.arange(24, dtype=np.float32).reshape(2, 3, 2, 2), y=np.array([1, 0]))
    data = labelled_data.read(path)
    assert data.labels == (1, 0) and data.read(1, PIXELS, None).min() == 12


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ("file,class\nn0.png,1\n", "labels.csv:1: found 'file,class'; wanted: file,class with the "
                                   "class as a number from 0, and no heading"),
        ("n0.png,1\nn1.png\n", "labels.csv:2: found 'n1.png'; wanted: file,class"),
        ("n0.png,-1\n", "labels.csv:1: found 'n0.png,-1'; wanted"),
        ("../n0.png,1\n", "labels.csv:1: '../n0.png' does not lie in the folder of labels.csv"),
        ("/n0.png,1\n", "labels.csv:1: '/n0.png' does not lie in the folder of labels.csv"),
        ("n0.gif,1\n", "labels.csv:1: 'n0.gif' is not accepted; accepted: .jpg, .jpeg, .png, .bmp, "
                       ".npy"),
        ("n0.png,1\nn7.png,1\n", "labels.csv: 1 of 2 files are not there, such as n7.png"),
        ("\n", "labels.csv: is empty; one `file,class` a line is wanted"),
        ("n0.png," + "9" * 5000, "labels.csv:1: found"),
        ('"n0.png\n' * 70000, "labels.csv:"),
    ],
)  # fmt: skip
def test_labels_that_are_refused(tmp_path: Path, labels: str, message: str) -> None:
    with pytest.raises(UserError) as error:
        labelled_data.read(folder_of_pictures(tmp_path, labels))
    assert message in error.value.message and "\n" not in error.value.message


def test_a_folder_without_labels(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"labels\.csv: there is no such file; it says what"):
        labelled_data.read(tmp_path)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": np.zeros((2, 3)), "y": np.zeros(3, int)}, "images [2, 3] need as many integer labels"
                                                         ", found int64 [3]"),
        ({"x": np.zeros((2, 3)), "y": np.zeros(2)}, "need as many integer labels, found float64"),
        ({"x": np.zeros(()), "y": np.zeros(2, int)}, "images [] need as many integer labels"),
        ({"x": np.zeros((2, 3))}, "has no array 'labels' or 'y' or 'targets'; it holds x"),
    ],
)  # fmt: skip
def test_archives_that_are_refused(
    tmp_path: Path, arrays: dict[str, np.ndarray], message: str
) -> None:
    np.savez(tmp_path / "d.npz", **arrays)  # type: ignore[arg-type]
    with pytest.raises(UserError) as error:
        labelled_data.read(tmp_path / "d.npz")
    assert message in error.value.message


def test_other_files_are_no_labelled_data(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"is not accepted as labelled data; accepted: a \.npz file"
    ):
        labelled_data.read(tmp_path / "d.csv")
