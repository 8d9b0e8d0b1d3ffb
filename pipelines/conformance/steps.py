"""The steps in which a model file is found out about, for whoever watches the process."""

from __future__ import annotations

IMPORTING = "importing"
REFERENCE = "the framework's own runtime"
EXECUTING = "executing"
BUILDING = "building"
