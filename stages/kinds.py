"""The kinds of artifact that stages exchange."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Table = dict[str, Any]
"""Plain data with a canonical JSON form."""

Files = dict[str, bytes]
"""Relative POSIX paths and their contents."""


@dataclass(frozen=True)
class Model:
    """A Relax module and the tensors its `main` refers to by parameter name.

    `main` takes the graph inputs first (their count is its attribute `num_input`), then one
    parameter per entry of `params`, in order. Tensors never sit inside the module, so a module
    stays small and a tensor is stored once however many stages hand it on.
    """

    module: Any
    params: dict[str, np.ndarray]


@dataclass(frozen=True)
class Golden:
    """Inputs of the source graph and the outputs it computes; the leading axis counts samples."""

    inputs: dict[str, np.ndarray]
    outputs: dict[str, np.ndarray]
