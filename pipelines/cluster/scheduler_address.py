"""Where stages are built: `executor=` and `scheduler=` of a command line."""

from __future__ import annotations

import re

from pipelines.errors import UserError, cut, nearest

PROCESSES, DASK = "processes", "dask"
EXECUTORS = (PROCESSES, DASK)
EXAMPLE = "scheduler=tcp://HOST:8786"
_ADDRESS = re.compile(r"(tcp|tls)://([\w.-]+|\[[0-9A-Fa-f:.]+\]):(\d{1,5})")


def scheduler(executor: str | None, address: str | None) -> str | None:
    """Return the address of the scheduler that builds, or None where processes here do.

    Raises UserError for another executor, for an address that is none, and for one of the two
    without the other.
    """
    if executor not in (None, *EXECUTORS):
        near = nearest(executor, EXECUTORS)
        hint = f"did you mean '{near}'?" if near else f"accepted: {', '.join(EXECUTORS)}"
        raise UserError(f"executor={cut(executor)}: there is no such executor; {hint}")
    if executor != DASK:
        if address is not None:
            raise UserError(f"scheduler={cut(address)}: is for executor={DASK}; add that")
        return None
    if address is None:
        raise UserError(f"executor={DASK} needs the address of a scheduler: {EXAMPLE}")
    if not (match := _ADDRESS.fullmatch(address)) or not 0 < int(match.group(3)) < 2**16:
        raise UserError(
            f"scheduler={cut(address)}: is no address of a scheduler; "
            "accepted: tcp://HOST:PORT and tls://HOST:PORT"
        )
    return address
