"""What tests of kernels and packages share."""

from __future__ import annotations

import pytest

from stages.quantizing import split_batch as batches


@pytest.fixture(autouse=True)
def whole_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """No batch is taken apart, so that kernels go through several images."""
    monkeypatch.setattr(batches, "first_together", lambda *_: 0)
