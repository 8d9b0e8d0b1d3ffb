"""What came of an order, as a worker says it: plain data on the wire."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from pipelines import exit_status

BUILT, FAILED, KILLED = "built", "failed", "killed"


@dataclass(frozen=True)
class Outcome:
    """A step that a worker built or found, or why it could not."""

    step: str
    worker: str
    """By its name, or its address where it has none."""
    origin: str
    """built; cached or fetched, where the worker had it or the shared store; failed; or killed,
    where worker after worker died while it was building this, or about to."""
    seconds: float
    why: str = ""
    """What went wrong, as a build here would say it; of a fault of bitkiln's with the traceback."""
    status: int = exit_status.DONE
    """The exit status that this asks for."""

    @property
    def is_fine(self) -> bool:
        """Whether the step's artifact is in the shared store."""
        return self.status == exit_status.DONE

    def to_plain(self) -> dict[str, Any]:
        """Return it as plain data."""
        return asdict(self)

    def line(self) -> str:
        """Return the line of a build that says it."""
        told = f"on {self.worker}" if self.is_fine else self.why
        return f"{self.step:<15} {self.origin:<8}{self.seconds:7.1f} s  {told}"


def of(plain: Mapping[str, Any]) -> Outcome:
    """Return what plain data says."""
    return Outcome(**plain)
