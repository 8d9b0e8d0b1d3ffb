"""A small artifact, committed to a store under a key."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pipelines.store import keys
from pipelines.store.manifest import Manifest, Parts
from pipelines.store.store import Store

KEY = keys.digest("a key")
PARTS = Parts(
    {"module.json": b"{}", "deep/er/file.bin": b"\0" * 100},
    {"weights": np.arange(12, dtype=np.int8).reshape(3, 4), "scalar": np.array(0.5, np.float32)},
)


def commit(artifacts: Store, parts: Parts = PARTS, key: str = KEY) -> Manifest:
    return artifacts.commit("importing", key, "model", parts, {"options": {"a": 1}})


def broken_manifest(path: Path) -> None:
    path.write_text(path.read_text()[:-20])


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
