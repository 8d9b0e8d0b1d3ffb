"""Every reader on damaged files: nothing but StageError, within bounds of time and memory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import warm
from tests.stages.importing.fuzzing import corpus
from tests.stages.importing.fuzzing.child import survive

ROOT = Path(__file__).parents[4]
FUZZING = "tests.stages.importing.fuzzing"
QUICK = 150
"""Files a format in every run of the tests."""
SECONDS = int(os.environ.get("BITKILN_FUZZ_SECONDS", "6"))
"""Of each fuzzer, for each format, in the slow tests."""
SEED = os.environ.get("BITKILN_FUZZ_SEED", "1")
"""Fixed, so that a failure is the change's own; libFuzzer draws one where it is 0."""


def run(module: str, *arguments: str, folder: Path, seconds: float) -> str:
    environment = {**warm.environment(), "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "0"}
    try:
        done = subprocess.run(
            [sys.executable, "-m", f"{FUZZING}.{module}", *arguments],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        pytest.fail(f"stands still on {folder / 'running'}")
    said = done.stdout[-2000:] + done.stderr[-6000:]
    assert done.returncode == 0, f"{said}\nended with {done.returncode} on a file of {folder}"
    return done.stdout + done.stderr


@pytest.mark.parametrize("ending", corpus.MADE)
def test_undamaged_files_of_the_corpus(ending: str) -> None:
    """The corpus must reach far into the readers: some of each format is imported whole."""
    from stages import importing

    sources, options = list(corpus.MADE[ending]()), corpus.options(ending)
    for source in sources:
        survive(source, options)
    found = [importing.describe(source=source, options=options) for source in sources]
    assert any(not item["unsupported"] for item in found)


@pytest.mark.parametrize("ending", corpus.MADE)
def test_damaged_files(ending: str, tmp_path: Path) -> None:
    assert corpus.write(tmp_path, ending, real=False)
    said = run("child", str(tmp_path), "1", str(QUICK), "120", folder=tmp_path, seconds=240)
    assert said.strip().endswith(f"{QUICK} files")


@pytest.mark.slow
@pytest.mark.parametrize("ending", corpus.MADE)
def test_damaged_real_files(ending: str, tmp_path: Path) -> None:
    if not os.environ.get("BITKILN_REALDATA"):
        pytest.skip("BITKILN_REALDATA is unset: real models are not part of the project")
    if corpus.write(tmp_path, ending, real=True) <= len(list(corpus.MADE[ending]())):
        pytest.skip(f"there is no real {ending} file that can be read")
    arguments = (str(tmp_path), "2", "1000000", str(SECONDS))
    run("child", *arguments, folder=tmp_path, seconds=3 * SECONDS + 120)


@pytest.mark.slow
@pytest.mark.parametrize("ending", corpus.MADE)
def test_files_that_coverage_leads_to(ending: str, tmp_path: Path) -> None:
    pytest.importorskip("atheris", reason="atheris guides the fuzzer")
    (tmp_path / "corpus").mkdir()
    assert corpus.write(tmp_path / "corpus", ending, real=True)
    limits = ("-max_len=70000", "-timeout=60", "-rss_limit_mb=8192", "-close_fd_mask=1")
    run(
        "guided", str(tmp_path / "corpus"), *limits, f"-max_total_time={SECONDS}", f"-seed={SEED}",
        folder=tmp_path, seconds=6 * SECONDS + 120,
    )  # fmt: skip
