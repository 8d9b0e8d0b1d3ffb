"""What an artifact's manifest says: its key with every ingredient, and its content by digest."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from pipelines.store import keys

if TYPE_CHECKING:
    # NumPy takes a good part of the second that `doit list` may take.
    import numpy as np

    from stages.kinds import Held

FORMAT = 1


class DamagedError(Exception):
    """An artifact that is there but is not what its manifest says."""


@dataclass(frozen=True)
class Content:
    """One file or tensor of an artifact: its name, SHA-256 and size in bytes."""

    name: str
    sha256: str
    size: int


@dataclass(frozen=True)
class Manifest:
    """What one artifact is made of and holds."""

    stage: str
    key: str
    kind: str
    output: str
    """Digest of the content alone: equal outputs of different keys are interchangeable."""
    ingredients: dict[str, Any]
    files: tuple[Content, ...]
    tensors: tuple[Content, ...]
    items: tuple[str, ...] = ()
    """Items used on the way, as `<folder>/<key>`."""


@dataclass(frozen=True)
class Parts:
    """Content to commit or just read: files by relative path, tensors by name, in order."""

    files: Mapping[str, bytes]
    tensors: Mapping[str, np.ndarray]
    held: Mapping[str, Held] = field(default_factory=dict)
    """Files too large for memory, to commit."""


def output_digest(kind: str, files: tuple[Content, ...], tensors: tuple[Content, ...]) -> str:
    """Return the digest by which the content of an artifact enters the keys that depend on it."""
    described = [kind, [asdict(c) for c in files], [asdict(c) for c in tensors]]
    return keys.digest(keys.canonical(described))


def parse(text: bytes) -> Manifest:
    """Return the manifest of a text; ValueError if it is none, or not as it was written."""
    try:
        tree = json.loads(text)
        if tree.pop("format") != FORMAT:
            raise ValueError("another format")
        for name in ("files", "tensors"):
            tree[name] = tuple(Content(**content) for content in tree[name])
        manifest = Manifest(**{**tree, "items": tuple(tree["items"])})
        _check(manifest)
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError("not a manifest") from error
    return manifest


def _check(manifest: Manifest) -> None:
    """Raise ValueError where a manifest does not describe the content it says it has."""
    given = (manifest.kind, manifest.files, manifest.tensors)
    if output_digest(*given) != manifest.output:
        raise ValueError("another content than was written")
    if not isinstance(manifest.ingredients, dict):
        raise ValueError("its ingredients are none")
    if not all(isinstance(item, str) for item in manifest.items):
        raise ValueError("its items are no names")


def render(manifest: Manifest) -> str:
    """Return the text of a manifest: the same for equal manifests, and readable."""
    return json.dumps({"format": FORMAT, **asdict(manifest)}, indent=1, sort_keys=True) + "\n"
