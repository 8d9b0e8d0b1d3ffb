"""Settings of all tests."""

from __future__ import annotations

import gc
import os

import pytest
from hypothesis import HealthCheck, settings

from tests.kept import share

# How long an example takes depends on the machine, and on what else it does.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")

# Compilers make objects by the hundred thousand that live as long as a test: to look for cycles
# among them every few hundred is a waste.
gc.set_threshold(100_000, 20, 20)


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """With workers (`-n`), neighbours stay on one: what a file makes once serves its next test."""
    if getattr(config.option, "numprocesses", None) and config.option.dist == "no":
        config.option.dist = "worksteal"


@pytest.fixture(scope="session", autouse=True)
def shared_by_workers(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What is made once in a run lies where every worker of the run finds it."""
    base = tmp_path_factory.getbasetemp()
    share((base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "kept")
