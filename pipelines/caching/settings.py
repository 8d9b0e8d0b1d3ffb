"""Which shared store this work folder uses, and whose signatures it trusts: a small YAML file.

`BITKILN_CACHE` names the file, whose fields are those of `Settings`; without it `cache.yaml` in the
work folder is that file, if it is there.
"""

from __future__ import annotations

import functools
import os
import re
import urllib.parse
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, PlainValidator

from pipelines import paths, work_folder
from pipelines.documents import validate
from pipelines.documents.trees import read
from pipelines.errors import Fault, UserError, cut, shown

VARIABLE = work_folder.CACHE_VARIABLE
UNSIGNED = "unsigned"
PROTOCOLS = ("file", "http", "https", "s3")
ACCEPTED = "file:///folder, https://host/folder, http://host/folder, s3://bucket/folder"
LIMIT = "20 GiB"
WHY_SIGNED = (
    "what nobody signed is read only with `trust: unsigned`, because `verify` runs what it brings"
)
_SIZE = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,3})?) ?(KiB|MiB|GiB|TiB)")
_UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_PUBLIC_KEY = re.compile(r"[0-9a-f]{64}")


def _trusted(value: object) -> tuple[str, ...]:
    """Return what `trust` says as public keys, or as `unsigned` alone."""
    if value == UNSIGNED:
        return (UNSIGNED,)
    if not isinstance(value, list):
        raise ValueError(f"is no list of public keys; or, for what nobody signed: {UNSIGNED}")
    for each in value:
        if not isinstance(each, str) or not _PUBLIC_KEY.fullmatch(each):
            told = cut(str(each), 80)
            raise ValueError(f"'{told}' is no public key: these have 64 digits, 0 to 9 and a to f")
    return tuple(value)


class Settings(BaseModel):
    """A cache file."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    remote: str = Field(description=f"The URL of the store: {ACCEPTED}.")
    trust: Annotated[tuple[str, ...], PlainValidator(_trusted)] = ()
    """Public keys, as `doit cache keygen` prints them; or `unsigned` alone."""
    sign: str | None = None
    """The file of the private key that entries are signed with; its public key is trusted."""
    write: bool | None = None
    """Whether results are written back; unsaid, they are if they can be signed or none need it."""
    limit: str = LIMIT
    """What `doit cache gc` leaves at most, here and in the shared store."""
    days: Annotated[int, Field(ge=1, le=36500)] | None = None
    """Entries of the shared store that nobody has written for so many days go, too."""
    timeout: Annotated[float, Field(gt=0, le=600)] = 20.0
    """Seconds that the shared store may take for an answer, or for 1 MiB."""
    storage: dict[str, Any] = Field(default_factory=dict)
    """Options of fsspec's file system, such as `endpoint_url` of s3://."""

    @property
    def protocol(self) -> str:
        """The URL's: one of `PROTOCOLS`."""
        return self.remote.partition("://")[0]

    @property
    def is_unsigned(self) -> bool:
        """Whether what anyone wrote is read."""
        return UNSIGNED in self.trust

    @property
    def writes(self) -> bool:
        """Whether results are written back."""
        if self.write is None:
            can = self.sign is not None or self.is_unsigned
            return can and not self.protocol.startswith("http")
        return self.write

    @property
    def shown(self) -> str:
        """The URL as it may be printed: without a user's name, password or token."""
        parts = urllib.parse.urlsplit(self.remote)
        host = parts.netloc.rpartition("@")[2]
        return f"{parts.scheme}://{host}{parts.path}"


def size(text: str) -> int | None:
    """Return the bytes of a size such as `20 GiB`, or None."""
    match = _SIZE.fullmatch(text)
    return int(float(match.group(1)) * _UNITS[match.group(2)]) if match else None


def path() -> Path | None:
    """Return the cache file, or None where there is none."""
    if named := os.environ.get(VARIABLE):
        return paths.expanded(named).absolute()
    return work_folder.CACHE if paths.is_file(work_folder.CACHE) else None


def load() -> Settings | None:
    """Return the settings; None where no file is named. UserError says all that is wrong."""
    found = path()
    return None if found is None else _of(found)


@functools.cache
def _of(file: Path) -> Settings:
    if not paths.is_file(file):
        raise UserError(
            f"{VARIABLE}={shown(file)}: there is no such file; it says which shared store to use"
        )
    faults: list[Fault] = []
    tree = read(file, faults)
    made = validate.validate(Settings, tree, faults) if tree is not None else None
    if tree is not None and made is not None:
        for field, sentence in _wrong(made):
            faults.append(Fault(validate.locate(tree, (field,)), field, sentence))
    if faults or made is None:
        raise UserError.of(faults)
    return made.model_copy(update={"sign": _beside(file, made.sign)})


def _beside(file: Path, sign: str | None) -> str | None:
    """A key file's path, which is relative to the file that names it."""
    return None if sign is None else str(file.parent / paths.expanded(sign))


def _wrong(made: Settings) -> list[tuple[str, str]]:
    """Each field that contradicts another, or that no pattern describes, with a sentence."""
    found: list[tuple[str, str]] = []
    rest = made.remote.partition("://")[2]
    if made.protocol not in PROTOCOLS or not rest or set(rest) & set("?# "):
        found.append(("remote", f"is no URL of a shared store; accepted: {ACCEPTED}"))
    if size(made.limit) is None:
        found.append(("limit", f"'{made.limit}' is no size; write it as {LIMIT} or 500 MiB"))
    if not made.trust and made.sign is None:
        found.append(("trust", f"names no public key; {WHY_SIGNED}"))
    if made.write and made.protocol.startswith("http"):
        found.append(("write", "http is only read; write by s3:// or file://, or say false"))
    elif made.write and made.sign is None and not made.is_unsigned:
        found.append(("write", "needs `sign: FILE`; `doit cache keygen out=FILE` writes a key"))
    return found
