"""The operators of all rooms by name: for whoever runs operators that it does not import.

A stage that reads this file, be it through others, has every file of the rooms in its key, since it
may run any of them (`pipelines.store.keys`). Who only reads calls takes `calls.py`; who calls
operators that it knows imports their files.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tvm import relax

from stages.dialect.registry import ROWS, Operator

OPERATORS: Mapping[str, Operator] = ROWS
"""Full name, such as `relax.qnn.conv2d` → operator."""


def normalizer() -> Any:
    """A new Relax builder, which infers the types of calls: it runs `infer` of any operator."""
    return relax.BlockBuilder()
