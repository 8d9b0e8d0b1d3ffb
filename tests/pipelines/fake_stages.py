"""The stages of a fake clone, as the texts of their files."""

from __future__ import annotations

from stages.rooms import ROOMS

REGISTRY = '''
"""The stages of a test."""
from stages.stage import Stage

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
    """Execute the source."""
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
