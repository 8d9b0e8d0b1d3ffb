"""An arm64 userland with other engines' wheels: `python -m pipelines.emulating.userland [MIRROR]`.

It holds Python of Debian 12 with the libraries that it needs, and the engines' own aarch64 wheels,
so that qemu-user can run them. Nothing is installed: packages are unpacked in the user's cache.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from pipelines.errors import UserError, shown
from pipelines.store import atomic, keys

COMMAND = "python -m pipelines.emulating.userland"
MIRROR = "http://deb.debian.org/debian"
RELEASE = "bookworm"
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
PYTHON = "3.11"
"""That of the release, which the wheels must be for."""
PACKAGES = (
    *(f"python{PYTHON}-minimal", f"libpython{PYTHON}-minimal", f"libpython{PYTHON}-stdlib"),
    *("libc6", "libgcc-s1", "libstdc++6", "zlib1g", "libexpat1", "libssl3", "libffi8"),
    *("libbz2-1.0", "liblzma5", "libuuid1"),
)
WHEELS = {"ai-edge-litert": "2.3.0", "onnxruntime": "1.32.0", "numpy": "2.3.5"}
"""The engines are the releases that the tests pin for this machine."""
_PLATFORMS = tuple(f"manylinux_2_{glibc}_aarch64" for glibc in (17, 27, 28))
_ROOT, _SITE = "root", "site"


def folder() -> Path:
    """Return where it is kept: a folder of its own for each list of packages and wheels."""
    from stages.packaging.compiling.linker import default_cache

    wanted = keys.canonical({"release": RELEASE, "packages": PACKAGES, "wheels": WHEELS})
    return default_cache().parent / "arm64" / keys.digest(wanted)[:12]


def root() -> Path:
    """Return the root of its file system."""
    return folder() / _ROOT


def site() -> Path:
    """Return the folder that PYTHONPATH must name."""
    return folder() / _SITE


def python() -> Path:
    """Return its Python."""
    return root() / "usr" / "bin" / f"python{PYTHON}"


def lack() -> str | None:
    """Return why no other engine can be emulated, with the command that mends it, or None."""
    if folder().is_dir():
        return None
    return f"no arm64 userland with other engines is here; to fetch one (60 MB): {COMMAND}"


def fetch(mirror: str = MIRROR) -> Path:
    """Fetch the userland unless it is there; return its folder, which appears whole or not at all.

    UserError says which tool is missing, or what a tool said that failed.
    """
    target = folder()
    if target.is_dir():
        print(f"is there: {shown(target)}")
        return target
    if absent := [tool for tool in ("apt-get", "dpkg") if shutil.which(tool) is None]:
        raise UserError(f"{' and '.join(absent)} of Debian or Ubuntu is needed to fetch a userland")
    if not Path(KEYRING).is_file():
        raise UserError(f"{KEYRING} is missing; run: apt install debian-archive-keyring")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="fetching-") as name:
        whole = Path(name) / "whole"
        whole.mkdir()
        print(f"Debian {RELEASE}, arm64, from {mirror}: {', '.join(PACKAGES)}", flush=True)
        for archive in _archives(Path(name) / "apt", mirror):
            _run(["dpkg", "-x", str(archive), str(whole / _ROOT)])
        print(f"wheels for aarch64: {', '.join(_pinned())}", flush=True)
        for wheel in _wheels(Path(name) / "wheels"):
            with zipfile.ZipFile(wheel) as stored:
                stored.extractall(whole / _SITE)
        atomic.sync_tree(whole)
        try:
            atomic.move(whole, target)
        except OSError:
            # Somebody else was quicker.
            if not target.is_dir():
                raise
    print(f"fetched: {shown(target)}")
    return target


def _archives(apt: Path, mirror: str) -> Iterator[Path]:
    """Download packages with lists and settings of apt's that are its own."""
    for name in ("state/lists/partial", "cache/archives/partial", "archives"):
        (apt / name).mkdir(parents=True)
    (apt / "status").touch()
    (apt / "sources.list").write_text(f"deb [signed-by={KEYRING}] {mirror} {RELEASE} main\n")
    options = {
        "Dir::State": apt / "state",
        "Dir::State::status": apt / "status",
        "Dir::Cache": apt / "cache",
        "Dir::Etc::sourcelist": apt / "sources.list",
        "Dir::Etc::sourceparts": "-",
        "APT::Architecture": "arm64",
        "APT::Architectures": "arm64",
        "APT::Sandbox::User": "root",
        "Acquire::Languages": "none",
    }
    given = ["apt-get", "-q", *(f"-o{name}={value}" for name, value in options.items())]
    _run([*given, "update"], apt)
    _run([*given, "download", *PACKAGES], apt / "archives")
    yield from sorted((apt / "archives").glob("*.deb"))


def _wheels(into: Path) -> Iterator[Path]:
    into.mkdir()
    given = [sys.executable, "-m", "pip", "download", "--quiet", "--dest", str(into), "--no-deps"]
    given += ["--only-binary=:all:", "--implementation=cp", f"--python-version={PYTHON}"]
    given += [f"--platform={platform}" for platform in _PLATFORMS]
    _run([*given, *_pinned()])
    yield from sorted(into.glob("*.whl"))


def _pinned() -> list[str]:
    return [f"{name}=={version}" for name, version in WHEELS.items()]


def _run(command: Sequence[str], where: Path | None = None) -> None:
    done = subprocess.run(command, cwd=where, capture_output=True, text=True, check=False)
    if done.returncode:
        said = " ".join((done.stderr or done.stdout).split())[-500:]
        raise UserError(f"{Path(command[0]).name} ended with status {done.returncode}: {said}")


if __name__ == "__main__":
    try:
        fetch(*sys.argv[1:2])
    except UserError as _error:
        sys.exit(f"ERROR: {_error.message}")
