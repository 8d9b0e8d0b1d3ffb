"""A wheel of a package: the loader and the shared library, for pip (PyPA's specification, 1.0).

Equal contents give equal bytes: entries are stored as they are, since what compresses them differs
from system to system, in the order of their names, with no time.
"""

from __future__ import annotations

import base64
import zipfile
from collections.abc import Mapping
from pathlib import Path

from hw.profile import Hardware
from stages.kinds import Held
from stages.packaging.files.bill_of_materials import glibc_of
from stages.packaging.files.digests import chunks, size_and_digest

_START = (1980, 1, 1, 0, 0, 0)
"""The least time that a zip file can state."""
_MACHINES = {"armv7": "armv7l"}
"""How architectures are called in tags, where that differs."""


def tag(hardware: Hardware) -> str:
    """Return the platform tag (PEP 600): a glibc at least as new as the one linked against."""
    machine = _MACHINES.get(hardware.architecture, hardware.architecture)
    return f"manylinux_{glibc_of(hardware).replace('.', '_')}_{machine}"


def file_name(name: str, version: str, hardware: Hardware) -> str:
    """Return what the wheel is called."""
    return f"{name}-{version}-py3-none-{tag(hardware)}.whl"


def write(
    path: Path,
    *,
    name: str,
    version: str,
    hardware: Hardware,
    library: bytes | Held,
    loader: bytes,
    notice: bytes,
    bill: bytes,
) -> None:
    """Write the wheel: after `pip install` of it `from NAME import Network` works."""
    about = f"{name}-{version}.dist-info"
    contents: dict[str, bytes | Held] = {
        f"{name}/__init__.py": loader,
        f"{name}/lib{name}.so": library,
        f"{about}/METADATA": _metadata(name, version, hardware).encode(),
        f"{about}/WHEEL": _wheel(hardware).encode(),
        f"{about}/licenses/NOTICE": notice,
        # PEP 770.
        f"{about}/sboms/{name}.cdx.json": bill,
    }
    record = f"{about}/RECORD"
    lines = [_line(file, data) for file, data in sorted(contents.items())]
    contents[record] = "".join([*lines, f"{record},,\n"]).encode()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as file:
        for entry, data in sorted(contents.items()):
            _add(file, entry, data)


def _add(file: zipfile.ZipFile, name: str, data: bytes | Held) -> None:
    info = zipfile.ZipInfo(name, _START)
    info.create_system = 3  # Unix, whatever wrote it
    info.external_attr = (0o100755 if name.endswith(".so") else 0o100644) << 16
    with file.open(info, "w") as entry:
        for chunk in chunks(data):
            entry.write(chunk)


def _line(name: str, data: bytes | Held) -> str:
    """An entry of RECORD."""
    size, digest = size_and_digest(chunks(data))
    coded = base64.urlsafe_b64encode(bytes.fromhex(digest)).rstrip(b"=").decode()
    return f"{name},sha256={coded},{size}\n"


def _metadata(name: str, version: str, hardware: Hardware) -> str:
    lines: Mapping[str, str] = {
        "Metadata-Version": "2.4",
        "Name": name,
        "Version": version,
        "Summary": f"{name}: a neural network compiled for {hardware.name}",
        "License-File": "NOTICE",
        "Requires-Python": ">=3.9",
        "Requires-Dist": "numpy",
    }
    return _fields(lines)


def _wheel(hardware: Hardware) -> str:
    lines = {
        "Wheel-Version": "1.0",
        "Generator": "bitkiln",
        "Root-Is-Purelib": "false",
        "Tag": f"py3-none-{tag(hardware)}",
    }
    return _fields(lines)


def _fields(lines: Mapping[str, str]) -> str:
    return "".join(f"{field}: {value}\n" for field, value in lines.items())
