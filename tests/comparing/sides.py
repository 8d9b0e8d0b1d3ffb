"""Builds the packages of one revision, by its own code, and keeps them for later runs."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pipelines.store.keys import tool_version
from tests.comparing.checkouts import Revision, checked_out
from tests.comparing.jobs import Job

DRIVER = Path(__file__).with_name("driver.py")
TOOLS = ("apache-tvm", "apache-tvm-ffi", "ziglang", "numpy", "onnx")
_FAILURE = "failure.txt"
_CRASHED = "the build crashed"
_INTERRUPTED = (-signal.SIGINT, -signal.SIGTERM)


@dataclass
class Side:
    """One of the two revisions: its checkout, and its packages by job."""

    revision: Revision
    folder: Path
    models: Path
    process: subprocess.Popen[str] | None = field(default=None, repr=False)

    @property
    def checkout(self) -> Path:
        """Where its files are."""
        return self.folder / "checkout"

    @property
    def _log(self) -> Path:
        return self.folder / "log.txt"

    def package(self, job: Job) -> Path:
        """Where a job's package is kept, or the text of why there is none."""
        return self.folder / "packages" / job.key

    def failure(self, job: Job) -> str | None:
        """Why a job could not be built, or None where it could."""
        path = self.package(job) / _FAILURE
        return path.read_text(encoding="utf-8") if path.exists() else None

    def is_built(self, job: Job) -> bool:
        """Whether there is a package already, or known to be none; crashes are tried again."""
        is_crashed = (self.failure(job) or "").startswith(_CRASHED)
        return self.package(job).exists() and not is_crashed

    def build(self, jobs: Sequence[Job], done: Callable[[], None]) -> None:
        """Build what is not there yet; `done` is called after each job, also those that were."""
        left = [job for job in jobs if not self.is_built(job)]
        for job in jobs:
            if job not in left:
                done()
        while left:
            left = self._drive(left, done)

    def stop(self) -> None:
        """End a build that is under way; what is finished is kept."""
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            self.process.wait()

    def _drive(self, jobs: Sequence[Job], done: Callable[[], None]) -> list[Job]:
        """Build in one process; return what is left if a job ended it, which is noted as failed."""
        left = list(jobs)
        process = self._start(jobs)
        assert process.stdout is not None
        for line in process.stdout:
            row = json.loads(line)
            self._keep(left[0], row["failure"])
            left.pop(0)
            done()
        status = process.wait()
        if status in _INTERRUPTED or not left:
            return []
        said = self._log.read_text(encoding="utf-8").strip().splitlines() or ["nothing was said"]
        self._keep(left[0], f"{_CRASHED} with status {status}: {said[-1]}")
        left.pop(0)
        done()
        return left

    def _start(self, jobs: Sequence[Job]) -> subprocess.Popen[str]:
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        with self._log.open("a", encoding="utf-8") as errors:
            process = subprocess.Popen(
                [sys.executable, "-P", str(DRIVER)],
                cwd=self.checkout,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self.process = process
        assert process.stdin is not None
        json.dump([[job.name, str(self._recipe(job))] for job in jobs], process.stdin)
        process.stdin.close()
        return process

    def _keep(self, job: Job, failure: str) -> None:
        """Copy a published package, or note why there is none, at once or not at all."""
        target = self.package(job)
        partial = target.with_name(f"{target.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        if failure:
            partial.mkdir(parents=True)
            (partial / _FAILURE).write_text(failure, encoding="utf-8")
        else:
            shutil.copytree(self.checkout / "artifacts" / "packages" / job.name, partial)
        shutil.rmtree(target, ignore_errors=True)
        partial.rename(target)

    def _recipe(self, job: Job) -> Path:
        if job.path:
            return self.checkout / job.path
        path = self.folder / "recipes" / f"{job.name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(job.recipe(self.models), encoding="utf-8")
        return path


def write_models(jobs: Sequence[Job], folder: Path) -> None:
    """Write the model files of random networks, once for both sides."""
    folder.mkdir(parents=True, exist_ok=True)
    for job in jobs:
        if not job.path:
            (folder / job.model_name).write_bytes(job.model())


def prepared(old: Revision, new: Revision, work: Path) -> tuple[Side, Side]:
    """Both sides with their files checked out; equal revisions are built twice all the same."""
    tools = "-".join([platform.python_version(), *(tool_version(tool) for tool in TOOLS)])
    suffix = hashlib.sha256(tools.encode()).hexdigest()[:8]
    sides = []
    for revision, again in ((old, ""), (new, "-again" if old.digest == new.digest else "")):
        folder = work / f"{revision.digest[:16]}-{suffix}{again}"
        folder.mkdir(parents=True, exist_ok=True)
        checked_out(revision, folder / "checkout")
        sides.append(Side(revision, folder, work / "models"))
    return sides[0], sides[1]
