"""Soaks: `python -m tests.soaks [COUNT] [SEED] [NAME ...]`, from the root of a clone.

Each does COUNT things (1,000 unless said otherwise) that a seed decides, and ends at the first
after which anything but a sentence is said, or the next build is not right:

recipes  damaged recipes and command lines are read: UserError or a plan, and no warning
models   damaged model files of every format are imported: StageError or a model
kills    two builds at once are killed at any moment
full     the disk fills up at any moment
damage   files of the store are changed, cut off, emptied, swapped, removed, or become folders
"""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from pipelines import command_line
from pipelines.errors import UserError
from pipelines.store.store import Store
from tests.pipelines.fake_clone import ROOT, TOY, Clone
from tests.pipelines.faults import put_on_a_disk
from tests.stages.importing.fuzzing import mutating

COUNT, SEED = 1000, 1
SENTENCE = re.compile(r"(warning: artifact .*; building it again\n)*(ERROR: [^\n]+\n)?")
"""All that a build may say of a store that is broken, or of a disk that refuses."""
WORDS = (
    *("~", "null", "on", "-1", "0", "9" * 40, "1e999", ".nan", "[]", "{}", "[[1]]", "''", "*a"),
    *("&a [*a]", "!!python/name:os.system", "a" * 5000, '"\\0"', "../../..", "host", "é", "\t"),
)
SOAKED = {"FAKE_SLEEP": "0.05"}


def recipes(count: int, rng: random.Random, folder: Path) -> None:
    """Read damaged recipes with odd fields on the command line."""
    folders = (ROOT / "recipes", ROOT / "recipes" / "ci", ROOT / "tests" / "bad_recipes")
    texts = [path.read_bytes() for each in folders for path in sorted(each.glob("*.yaml"))]
    (folder / "base.yaml").write_text(f"{TOY}outputs: {{y: {{labels: names.txt}}}}\n")
    names = [name for name in _fields() if "<" not in name]
    for number in range(count):
        text = mutating.mutated(rng.choice(texts), texts, rng)
        if rng.random() < 0.5:
            text = _reworded(rng.choice(texts), rng)
        (folder / "net.yaml").write_bytes(text)
        given = [
            f"{rng.choice(names)}={rng.choice(WORDS)}" for _ in range(rng.choice((0, 0, 1, 2)))
        ]
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                session = command_line.open_session(["build", f"recipe={folder}/net.yaml", *given])
                list(session.tasks())
        except UserError as error:
            assert str(error).strip(), f"recipe {number}: an error without a word"
        except BaseException:
            print(f"recipe {number}: {text!r} {given}", file=sys.stderr)
            raise


def _fields() -> list[str]:
    from pipelines.documents import fields
    from pipelines.recipe.recipe import Recipe

    return [name for name in fields.dotted(Recipe) if name != "extends"]


def _reworded(text: bytes, rng: random.Random) -> bytes:
    """Replace one value by a word that means trouble, or move a line in or out."""
    lines = text.decode(errors="replace").splitlines()
    at = rng.randrange(len(lines)) if lines else 0
    if not lines or rng.random() < 0.2:
        lines.insert(at, " " * rng.randrange(5) + rng.choice(lines or ["a: 1"]))
    else:
        word = rng.choice(WORDS)
        lines[at] = re.sub(r"(?<=: )[^,}\]]+", lambda _: word, lines[at], count=1)
    return ("\n".join(lines) + "\n").encode()


def models(count: int, rng: random.Random, folder: Path) -> None:
    """Import damaged files of every format."""
    from tests.stages.importing.fuzzing import child, corpus

    found: list[Path] = []
    for place, ending in enumerate(corpus.MADE):
        files = folder / f"format{place}"
        files.mkdir()
        try:
            assert corpus.write(files, ending, real=False)
            found.append(files)
        except pytest.skip.Exception as reason:
            print(f"models: no {ending}: {reason}")
    for place, files in enumerate(found):
        share = len(range(place, count, len(found)))
        assert child.main(files, rng.randrange(2**31), share, 3600) == 0


class Bench:
    """A clone whose builds are to be disturbed, and what they give when they are not."""

    def __init__(self, folder: Path) -> None:
        self.clone = Clone(folder / "clone")
        put_on_a_disk(self.clone)
        self.artifacts = self.clone.root / "artifacts"
        self.clone.doit("build", "recipe=toy")
        self.right = self.clone.package()

    def empty(self) -> None:
        """Leave nothing in the store."""
        shutil.rmtree(self.artifacts, ignore_errors=True)

    def check(self, what: str, *, is_whole: bool = True) -> None:
        """The next build must be right, and all of the store whole: what was changed later is not.

        It is found when it is read.
        """
        out, err = self.clone.doit("build", "recipe=toy")
        assert SENTENCE.fullmatch(err) and "ERROR" not in err, f"{what}: {err}"
        assert self.clone.package() == self.right, f"{what}: another package\n{out}{err}"
        for path in self.artifacts.glob("**/manifest.json") if is_whole else ():
            stage = path.parent.parent.relative_to(self.artifacts)
            # A package has a manifest of its own, where it is an artifact's content, too.
            if stage.parts[0] not in ("tmp", "packages") and path.parent.name != "files":
                self._read(stage.as_posix(), path)

    def _read(self, stage: str, path: Path) -> None:
        store, key = Store(self.artifacts), re.search(r'"key": "(\w+)"', path.read_text())
        assert key is not None
        manifest = store.manifest(stage, key[1])
        assert manifest is not None
        store.read(manifest)


def kills(count: int, rng: random.Random, folder: Path) -> None:
    """Kill two builds at once, one a little after the other or both together."""
    bench = Bench(folder)
    for number in range(count):
        if rng.random() < 0.7:
            bench.empty()
        bench.clone.environment = dict(SOAKED)
        both = [bench.clone.start("build", "recipe=toy") for _ in range(2)]
        bench.clone.environment = {}
        for process in both:
            time.sleep(rng.uniform(0, 0.6))
            if process.returncode is None and rng.random() < 0.9:
                try:
                    os.killpg(process.pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue  # it was faster
        for process in both:
            _, err = process.communicate(timeout=120)
            assert "Traceback" not in err, f"kill {number}: {err}"
        bench.check(f"kill {number}")


def full(count: int, rng: random.Random, folder: Path) -> None:
    """Let the disk fill up when so much was written, or have no quota left."""
    bench = Bench(folder)
    for number in range(count):
        if rng.random() < 0.8:
            bench.empty()
        fault = {
            "FAKE_DISK": rng.choice(("ENOSPC", "EDQUOT")),
            "FAKE_ROOM": str(rng.randrange(150)),
        }
        bench.clone.environment = fault
        process = bench.clone.start("build", "recipe=toy", f"golden.seed={rng.randrange(3)}")
        _, err = process.communicate(timeout=120)
        bench.clone.environment = {}
        assert process.returncode in (0, 3), f"full {number}, {fault}: {err}"
        assert SENTENCE.fullmatch(err), f"full {number}, {fault}: {err}"
        assert (process.returncode == 3) == ("make room and try again" in err), err
        bench.check(f"full {number}, {fault}")


def damage(count: int, rng: random.Random, folder: Path) -> None:
    """Damage one file of the store, or many, in any way."""
    bench = Bench(folder)
    for number in range(count):
        files = sorted(p for p in bench.artifacts.rglob("*") if p.is_file() and p.name != ".lock")
        chosen = rng.sample(files, rng.choice((1, 2, 5, len(files))))
        pairs = [(path, rng.choice(tuple(WAYS))) for path in chosen]
        for path, way in pairs:
            WAYS[way](path, rng)
        if rng.random() < 0.5:  # so that what it is made of is read
            shutil.rmtree(bench.artifacts / "packaging", ignore_errors=True)
        done = [f"{path.relative_to(bench.artifacts)} {way}" for path, way in pairs]
        bench.check(f"damage {number}: {done}", is_whole=False)


def _flip(path: Path, rng: random.Random) -> None:
    data = bytearray(path.read_bytes())
    if data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


def _cut(path: Path, rng: random.Random) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: rng.randrange(len(data) + 1)])


def _become_a_folder(path: Path, rng: random.Random) -> None:
    del rng
    path.unlink()
    path.mkdir()


WAYS: dict[str, Callable[[Path, random.Random], object]] = {
    "flipped": _flip,
    "cut off": _cut,
    "emptied": lambda path, rng: path.write_bytes(b""),
    "of another kind": lambda path, rng: path.write_bytes(
        rng.choice((b"null", b"[]", b"3", b"{}"))
    ),
    "garbage": lambda path, rng: path.write_bytes(rng.randbytes(path.stat().st_size)),
    "removed": lambda path, rng: path.unlink(),
    "a folder": _become_a_folder,
}
SOAKS = {each.__name__: each for each in (recipes, models, kills, full, damage)}


def soak(name: str, count: int, seed: int) -> float:
    """Do one soak in a folder of its own; return the seconds it took."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="bitkiln-soak-") as folder:
        SOAKS[name](count, random.Random(f"{name} {seed}"), Path(folder))
    return time.monotonic() - started


def main(argv: list[str]) -> None:
    """Do all soaks, or those named."""
    numbers = [int(word) for word in argv if word.isdecimal()]
    count, seed = (*numbers, *(COUNT, SEED)[len(numbers) :])
    for name in [word for word in argv if word in SOAKS] or SOAKS:
        print(f"{name}: {count} in {soak(name, count, seed):.0f} s", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
