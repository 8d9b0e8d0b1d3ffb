"""The digits that networks here are trained and tested with, and what their trainer kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

FOLDER = Path(__file__).parent
TEST = FOLDER / "digits_test.npz"
"""The digits not trained on: `images` float32 [360, 1, 8, 8] in 0 .. 1, `labels` int64 [360]."""
LOGITS = FOLDER / "digits_logits.npz"
"""What the trainer's own forward pass says about these, float32 [360, 10] by network."""
RATES = FOLDER / "digits_rates.json"
"""How many of them each network has right by that, and what trained it."""
NAMES = (*(f"a{a}w{w}" for a in (1, 2, 3) for w in (1, 2, 3)), "int8", "float")
"""The networks, by their precision."""
SEED = 0
TEST_IMAGES = 360


def model_file(name: str) -> Path:
    """The file of a network."""
    return FOLDER / f"digits_{name}.onnx"


def load_digits() -> tuple[Array, Array]:
    """scikit-learn's digits: images float32 [1797, 1, 8, 8] in 0 .. 1, labels int64 [1797].

    The first TEST_IMAGES are not trained on.
    """
    from sklearn import datasets

    data = datasets.load_digits()
    images = (data.images / 16).astype(np.float32)[:, np.newaxis]
    order = np.random.default_rng(SEED).permutation(len(images))
    return images[order], data.target[order].astype(np.int64)
