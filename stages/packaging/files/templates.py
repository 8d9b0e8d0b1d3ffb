"""The texts of `shipped/`, filled in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

_PROFILE = re.compile(r" *# @PROFILE@\n(.*?) *# @END@\n", re.DOTALL)
"""What of the loader tells layer times."""


def filled(file: str, values: Mapping[str, str], profile: bool = False) -> str:
    """Return a text of `shipped/`, without what tells layer times unless `profile`.

    What is put in is never looked through again.
    """
    found = _PROFILE.sub(r"\1" if profile else "", text(file))
    assert all(mark in found for mark in values), file
    return re.sub("|".join(re.escape(mark) for mark in values), lambda m: values[m[0]], found)


@cache
def text(file: str) -> str:
    """Return a text of `shipped/` as it stands."""
    return files("stages.packaging").joinpath("shipped").joinpath(file).read_text("utf-8")
