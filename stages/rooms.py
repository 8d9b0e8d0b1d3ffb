"""The rooms that stages share, by name: folders of stages/ whose files register operators.

Each imports those before it and none behind it.
"""

from __future__ import annotations

ROOMS = ("dialect", "kernels", "graph", "numerics")
