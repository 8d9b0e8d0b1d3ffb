"""Where pages are written."""

from __future__ import annotations

from pipelines.builds.plan_execution import STORE
from pipelines.errors import shown
from pipelines.paths import expanded
from pipelines.store import atomic


def write(text: str, stated: str | None, name: str) -> None:
    """Write a page to the file that was stated, else to NAME.html in `artifacts/reports`."""
    default = STORE.root / "reports" / f"{name}.html"
    target = (expanded(stated) if stated is not None else default).absolute()
    atomic.replace(target, text.encode())
    print(f"written: {shown(target)}, {len(text) / 1024:.0f} KiB")
