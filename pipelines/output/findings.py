"""What a doctor found: one line a thing looked at, of this machine or of a board."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from pipelines.output import printed_tables


@dataclass(frozen=True)
class Finding:
    """One thing looked at.

    Of this machine something is `optional` or `missing`; of a board something is a `warning`, with
    which times are not to be trusted, or a `fault`, with which the board cannot be used.
    """

    what: str
    state: Literal["ok", "optional", "missing", "warning", "fault"]
    found: str
    advice: str = ""


def show(title: str, findings: Sequence[Finding]) -> None:
    """Print one line a finding."""
    # Advice stands in the last column too, which tables never shorten.
    told = [
        {**asdict(item), "found": "; ".join(filter(None, [item.found, item.advice]))}
        for item in findings
    ]
    printed_tables.show(title, told, ["what", "state", "found"])


def rows(findings: Sequence[Finding]) -> list[dict[str, Any]]:
    """Findings as plain data."""
    return [asdict(item) for item in findings]
