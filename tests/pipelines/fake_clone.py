"""A clone of the project with small stages of its own, driven through doit as a user would."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

from stages.rooms import ROOMS
from tests import warm

ROOT = Path(__file__).resolve().parents[2]

REGISTRY = '''
"""The stages of a test."""
from stages.registry import Stage

STAGES = (
    Stage("zoo", "stages.importing.zoo:build", "source", options={"options": "ZooOptions"}),
    Stage("importing", "stages.importing:run", "table", {"source": "zoo"},
          {"options": "ImportOptions"}),
    Stage("golden", "stages.importing:golden", "golden", {"source": "zoo"},
          {"options": "GoldenOptions"}),
    Stage("legalizing", "stages.legalizing:run", "table", {"model": "importing"},
          {"options": "LegalizeOptions"}, hardware=True),
    Stage("packaging", "stages.packaging:run", "files",
          {"model": "legalizing", "golden": "golden"}, {"options": "PackageOptions"},
          hardware=True, items=True),
)
'''

LOG = '''
"""Notes which stage ran: the one impurity of these stages, so that a test can count."""
import os
from pathlib import Path


def ran(name):
    """Note a run."""
    with Path(os.environ["FAKE_LOG"]).open("a") as file:
        file.write(name + "\\n")
'''

ZOO = '''
"""A source."""
from stages.log import ran


def build(*, options):
    """Write the bits of a net."""
    ran("zoo")
    layers = [f"{item.match}={item.weights.bits}" for item in options.layers if item.weights]
    return f"net {options.weights.bits} {options.seed} {' '.join(layers)}".encode()
'''

IMPORTING = '''
"""The first stage."""
import os

import numpy as np

from stages.kinds import Golden
from stages.log import ran


def run(*, source, options):
    """Parse."""
    ran("importing")
    return {"layers": bits_of(source)}


def bits_of(source):
    """Read the bits of each layer."""
    words = source.decode().split()
    bits = dict(word.split("=") for word in words[3:])
    names = ["conv1", "conv2", "conv3"]
    return {name: int(bits.get(name, words[1])) for name in names}


def describe(*, source, options):
    """Say what the source holds."""
    layers = [
        {"layer": name, "activations": None, "weights": {"bits": bits, "encoding": "bipolar"}}
        for name, bits in bits_of(source).items()
    ]
    return {
        "inputs": [{"name": "x", "dtype": "float32", "shape": [2, 3]}],
        "outputs": [{"name": "y", "shape": [2, 3]}],
        "operators": {"Conv": 3},
        "layers": layers,
        "unsupported": [],
    }


def executor(*, source, options=None, also=()):
    """Execute the graph: add a number."""
    added = len(source) + int(os.environ.get("FAKE_SOURCE_OFF", "0"))
    return lambda inputs: {"y": inputs["x"] + np.float32(added)}


def golden(*, source, options):
    """Run the oracle."""
    ran("golden")
    x = np.arange(options.samples * 6, dtype=np.float32).reshape(options.samples, 2, 3)
    return Golden({"x": x}, {"y": x + len(source)})
'''

LEGALIZING = '''
"""The second stage."""
import os
import time

from stages.errors import StageError
from stages.log import ran


def run(*, model, options, hardware):
    """Choose."""
    ran("legalizing")
    time.sleep(float(os.environ.get("FAKE_SLEEP", "0")))
    if any(item.algorithm == "mac8" for item in options.layers):
        raise StageError("no 8-bit kernel", layer="conv2", hint="use algorithm: bitserial")
    if os.environ.get("FAKE_CRASH"):
        raise RuntimeError("a bug")
    return {**model, "isa": hardware.isa}
'''

PACKAGING = '''
"""The last stage."""
import json

from stages.log import ran


def run(*, model, golden, options, hardware, memo):
    """Compile each layer and link."""
    ran("packaging")
    layers = model["layers"]
    names = sorted(layers)
    files = {}
    for index, name in enumerate(names):
        above = layers[names[index - 1]] if index else 8
        problem = {"bits": layers[name], "above": above, "isa": hardware.isa, "name": name}

        def build(name=name):
            ran(f"item:{name}")
            return name.encode() * 100

        files[f"lib/{name}.o"] = memo("composite", problem, build)
    files["formats"] = f"{options.name} {options.formats}".encode()
    files["added"] = str(int((golden.outputs["y"] - golden.inputs["x"]).max())).encode()
    memory = {"constant_bytes": 2048, "arena_bytes_one_thread": 3 << 20,
              "scratch_bytes_per_thread": 1 << 19}
    sizes = {name: {"bytes": len(data)} for name, data in files.items()}
    manifest = {"files": sizes, "memory": memory, "inputs": [{"shape": [1, 3]}]}
    return files | {"manifest.json": json.dumps(manifest).encode()}
'''

COUNTING = '''
"""How much these networks compute."""


def work(plan):
    """Return it, and what was predicted."""
    return {"macs": 1234567, "layers": 2, "cycles": 98765}
'''

RUNNERS = '''
"""Runs the packages of these stages: they add a number."""
import contextlib
import os
from types import SimpleNamespace

import numpy as np

from pipelines.errors import UserError

Package = SimpleNamespace


def open_package(folder):
    """Open a package."""
    return SimpleNamespace(architecture="aarch64")


@contextlib.contextmanager
def choose(folder, machine):
    """Give a runner."""
    if os.environ.get("FAKE_NO_EMULATOR"):
        raise UserError("the emulator is not installed; run: pip install -e .[emulator]")
    added = np.float32((folder / "added").read_text()) + np.float32(os.environ.get("FAKE_OFF", 0))
    tensor, output = (
        SimpleNamespace(name=name, shape=(2, 3), dtype="float32", quantization=None)
        for name in "xy"
    )
    package = SimpleNamespace(inputs=(tensor,), outputs=(output,))

    def run(inputs, threads):
        return {"y": inputs["x"] + added}

    yield SimpleNamespace(package=package, how="in a test", run=run)
'''

REPLAY = '''
"""Programs of these packages: there are none."""
from types import SimpleNamespace

from pipelines.errors import UserError

Replay = SimpleNamespace


def replay(package, threads):
    """Refuse."""
    raise UserError("there is no program")


def qemu_prefix(architecture):
    """Find no emulator."""
    return None


def qemu_lacks(architecture):
    """Miss what Debian has."""
    return ["qemu-user", f"libc of {architecture}"]


qemu_replay = replay
'''

STAGES = {
    "__init__.py": REGISTRY,
    "log.py": LOG,
    "importing/__init__.py": IMPORTING,
    "importing/zoo.py": ZOO,
    "legalizing/__init__.py": LEGALIZING,
    "packaging/__init__.py": PACKAGING,
    **{f"{room}/__init__.py": '"""Nothing."""\n' for room in ROOMS},
}

TOY = """
description: a toy
model: {zoo: residual_block}
quantization: {activations: {bits: 2}, weights: {bits: 1}}
hardware: rpi3
"""


def doit(*arguments: str) -> subprocess.CompletedProcess[str]:
    """doit in the project itself; whatever it ends with."""
    return warm.run(*arguments, cwd=ROOT)


COPIED = ("pipelines", "hw")


@functools.cache
def _compiled() -> Path:
    """The folders of the project that a clone has as they are, compiled once for all clones."""
    folder = warm.scratch("clone")
    ignored = shutil.ignore_patterns("artifacts", "runners", "__pycache__", ".*")
    for name in COPIED:
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    warm.compile_all(folder)
    return folder


class Clone:
    """A folder like a user's clone, with fake stages and recipes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for folder in COPIED:
            shutil.copytree(_compiled() / folder, root / folder)
        shutil.copy(ROOT / "pyproject.toml", root)
        shared = ("options", "errors", "kinds", "artifacts", "registry", "pixels", "rooms")
        for name in (f"{module}.py" for module in shared):
            self.write(f"stages/{name}", (ROOT / "stages" / name).read_text())
        for name, text in STAGES.items():
            self.write(f"stages/{name}", text)
        self.write("pipelines/builds/work_count.py", COUNTING)
        self.write("pipelines/runners/__init__.py", RUNNERS)
        self.write("pipelines/runners/replay.py", REPLAY)
        self.write("pipelines/runners/package.py", "Tensor = object\n")
        self.write("recipes/toy.yaml", TOY)
        self.log = root / "log.txt"
        self.environment: dict[str, str] = {}

    def write(self, name: str, text: str) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def edit(self, name: str, old: str, new: str) -> None:
        text = (self.root / name).read_text()
        assert old in text
        self.write(name, text.replace(old, new))

    def start(self, *arguments: str) -> warm.Process:
        environment = {**os.environ, "FAKE_LOG": str(self.log), **self.environment}
        environment.pop("PYTHONPATH", None)
        return warm.start(*arguments, cwd=self.root, env=environment)

    def doit(self, *arguments: str, expect: int = 0) -> tuple[str, str]:
        """Run doit to its end; its exit code must be `expect`."""
        process = self.start(*arguments)
        out, err = process.communicate(timeout=120)
        assert process.returncode == expect, f"exit {process.returncode}\n{out}\n{err}"
        return out, err

    def counted(self, *arguments: str, expect: int = 0) -> dict[str, int]:
        """Run doit and return how often each stage and item was built meanwhile."""
        self.log.unlink(missing_ok=True)
        self.doit(*arguments, expect=expect)
        return self.runs()

    def runs(self) -> dict[str, int]:
        return dict(Counter(self.log.read_text().split())) if self.log.exists() else {}

    def package(self, recipe: str = "toy") -> dict[str, bytes]:
        folder = self.root / "artifacts" / "packages" / recipe
        files = (path for path in folder.rglob("*") if path.is_file())
        return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}

    def manifests(self, stage: str) -> list[Path]:
        return sorted((self.root / "artifacts" / stage).glob("*/manifest.json"))


def tree(folder: Path) -> dict[str, bytes]:
    """Return what a store holds but for doit's database, the lock and Python's own files."""
    skipped: Any = (".doit.db", ".lock", ".code.json")
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in skipped
    }
