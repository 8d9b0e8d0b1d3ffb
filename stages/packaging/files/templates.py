"""The texts of `shipped/`, filled in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

_MARK = re.compile(r" *# @(LAYER_TIME|PROFILE)@\n")
"""Where the loader has what tells layer times."""
_PART = re.compile(_MARK.pattern + r"(.*?) *# @END@\n", re.DOTALL)
"""That, in a file of its own."""


def filled(file: str, values: Mapping[str, str], profile: bool = False) -> str:
    """Return a text of `shipped/`, without what tells layer times unless `profile`.

    What is put in is never looked through again.
    """
    parts = dict(_PART.findall(text("loader_times.py"))) if profile else {}
    found = _MARK.sub(lambda mark: parts.get(mark[1], ""), text(file))
    assert all(mark in found for mark in values), file
    return re.sub("|".join(re.escape(mark) for mark in values), lambda m: values[m[0]], found)


@cache
def text(file: str) -> str:
    """Return a text of `shipped/` as it stands."""
    return files("stages.packaging").joinpath("shipped").joinpath(file).read_text("utf-8")
