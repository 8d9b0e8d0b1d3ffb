"""What tests of kernels and packages share."""

from __future__ import annotations

import pytest

from stages.quantizing import split_batch


@pytest.fixture(autouse=True)
def whole_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """No batch is split, so that kernels go through several images."""
    monkeypatch.setattr(split_batch, "first_together", lambda *_: 0)
