"""Memory that compiled functions run on: mapped once, and used again."""

from __future__ import annotations

PAGE = 4096


class Pool:
    """Memory by its size."""

    def __init__(self) -> None:
        self._free: dict[int, list[int]] = {}

    def allocate(self, size: int) -> int:
        """Address of `size` bytes (whole pages) with an unmapped page behind them."""
        free = self._free.get(size)
        return free.pop() if free else self._map(size)

    def release(self, address: int, size: int) -> None:
        """Give `allocate`d memory back for the next of its size."""
        self._free.setdefault(size, []).append(address)

    def _map(self, size: int) -> int:
        raise NotImplementedError
