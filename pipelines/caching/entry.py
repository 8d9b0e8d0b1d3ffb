"""Entries: which key gave which result, signed with Ed25519, and all that a reader checks.

An entry is a text of three lines, then the manifest as the store renders it:

    bitkiln entry 1
    the public key, 64 hexadecimal digits, or `unsigned`
    the signature, 128 hexadecimal digits, or `unsigned`

What is signed is the first line, the stage or kind of item, the full key, and the manifest: an
entry at another key than its own is as good as none.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from pipelines import paths
from pipelines.caching.settings import UNSIGNED, WHY_SIGNED
from pipelines.errors import UserError, shown
from pipelines.store import atomic
from pipelines.store.manifest import Content, Manifest, parse, render

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

HEAD = b"bitkiln entry 1"
LONGEST = 16 * 2**20
"""Bytes of an entry."""
LARGEST = 8 * 2**30
"""Bytes of all contents of an artifact."""
MOST = 100_000
"""Contents of an artifact."""
_KEY = re.compile(rb"[0-9a-f]{64}")
_SIGNATURE = re.compile(rb"[0-9a-f]{128}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_NAME = re.compile(r"[^\x00-\x1f\\:]{1,1000}")
_ITEM = re.compile(r"items/[a-z][a-z0-9_]*/[0-9a-f]{64}")
_INSTALL = "pip install -e '.[cache]'"


class BadEntryError(Exception):
    """An entry that is there but is not to be used."""


class Signer:
    """Signs entries with one private key, or not at all."""

    def __init__(self, file: str | None) -> None:
        self._key = None if file is None else _private(Path(file))
        self.public = UNSIGNED if self._key is None else _public(self._key)

    def entry(self, manifest: Manifest) -> bytes:
        """Return the entry of a manifest."""
        text = render(manifest).encode()
        signature = UNSIGNED
        if self._key is not None:
            signature = self._key.sign(_signed(manifest.stage, manifest.key, text)).hex()
        return b"\n".join((HEAD, self.public.encode(), signature.encode(), text))


def opened(data: bytes, stage: str, key: str, trusted: Collection[str]) -> Manifest:
    """Return the manifest in the entry of a key; BadEntryError, with the reason, if it is bad.

    `trusted` are public keys; with `unsigned` among them no signature is looked at.
    """
    public, signature, text = _taken_apart(data)
    if UNSIGNED not in trusted:
        _check(public, signature, _signed(stage, key, text), trusted)
    manifest = checked(text)
    if (manifest.stage, manifest.key) != (stage, key):
        raise BadEntryError("it is of another key")
    return manifest


def described(data: bytes) -> Manifest:
    """Return the manifest of any entry, whoever signed it: what gc goes by, which runs nothing."""
    return checked(_taken_apart(data)[2])


def checked(text: bytes) -> Manifest:
    """Return the manifest of a text from outside; no name in it leaves its folder."""
    try:
        manifest = parse(text)
    except (ValueError, RecursionError) as error:
        raise BadEntryError("its manifest is none") from error
    contents = (*manifest.files, *manifest.tensors)
    if len(contents) > MOST or not all(_is_plain(each) for each in contents):
        raise BadEntryError("its manifest has contents that no artifact has")
    if sum(each.size for each in contents) > LARGEST:
        raise BadEntryError(f"its contents are larger than {LARGEST >> 30} GiB")
    if not all(_ITEM.fullmatch(item) for item in manifest.items):
        raise BadEntryError("its manifest names items that are none")
    if not all(_is_relative(each.name) for each in manifest.files):
        raise BadEntryError("its manifest names a file outside its folder")
    return manifest


def keygen(file: Path) -> str:
    """Write a new private key, which only this user can read; return its public key."""
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    except ModuleNotFoundError:
        raise _missing() from None
    made = Ed25519PrivateKey.generate()
    text = made.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    atomic.make_folder(file.absolute().parent)
    try:
        opened = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise UserError(f"{shown(file)}: is there already; name a file that is not") from None
    with os.fdopen(opened, "wb") as target:
        target.write(text)
    return _public(made)


def _signed(stage: str, key: str, text: bytes) -> bytes:
    return b"\n".join((HEAD, stage.encode(), key.encode(), text))


def _taken_apart(data: bytes) -> tuple[bytes, bytes, bytes]:
    parts = data.split(b"\n", 3)
    if len(parts) != 4 or parts[0] != HEAD:
        raise BadEntryError("it is no entry")
    return parts[1], parts[2], parts[3]


def _check(public: bytes, signature: bytes, signed: bytes, trusted: Collection[str]) -> None:
    """Raise BadEntryError unless one of the trusted keys signed this."""
    if public == UNSIGNED.encode():
        raise BadEntryError(f"it is not signed; {WHY_SIGNED}")
    if not _KEY.fullmatch(public) or not _SIGNATURE.fullmatch(signature):
        raise BadEntryError("its signature is none")
    if public.decode() not in trusted:
        raise BadEntryError(f"it is signed by {public.decode()[:12]}…, whom `trust` does not name")
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    except ModuleNotFoundError:
        raise _missing() from None

    try:
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(public.decode()))
        key.verify(bytes.fromhex(signature.decode()), signed)
    except (InvalidSignature, ValueError):
        raise BadEntryError("its signature is not of this key and result") from None


def _is_plain(content: Content) -> bool:
    return (
        isinstance(content.name, str)
        and isinstance(content.sha256, str)
        and _DIGEST.fullmatch(content.sha256) is not None
        and type(content.size) is int
        and content.size >= 0
    )


def _is_relative(name: str) -> bool:
    """Whether a name is a plain path below its folder."""
    parts = name.split("/")
    return _NAME.fullmatch(name) is not None and all(part not in ("", ".", "..") for part in parts)


def _private(file: Path) -> Ed25519PrivateKey:
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519
        from cryptography.hazmat.primitives.serialization import load_pem_private_key
    except ModuleNotFoundError:
        raise _missing() from None
    if not paths.is_file(file):
        made = "`doit cache keygen out=FILE` writes one"
        raise UserError(f"{shown(file)}: there is no such file to sign with; {made}")
    try:
        key = load_pem_private_key(file.read_bytes()[:10_000], None)
    except (ValueError, TypeError):
        key = None
    if not isinstance(key, ed25519.Ed25519PrivateKey):
        raise UserError(f"{shown(file)}: is no private key of Ed25519 without a password")
    return key


def _missing() -> UserError:
    return UserError(f"cryptography signs entries and is missing; run: {_INSTALL}")


def _public(key: Ed25519PrivateKey) -> str:
    return key.public_key().public_bytes_raw().hex()
