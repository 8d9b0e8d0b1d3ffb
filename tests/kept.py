"""What several tests need and is dear to make: made once in a run, by whichever worker is first."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import NamedTemporaryFile

_items: dict[str, bytes] = {}
_folder: list[Path] = []


def share(folder: Path) -> None:
    """Keep items in a folder of this run, too, where other workers find them."""
    folder.mkdir(exist_ok=True)
    _folder[:] = [folder]


def kept(kind: str, ingredients: Mapping[str, object], build: Callable[[], bytes]) -> bytes:
    """An item store, as stages are given one, that forgets everything when the run ends."""
    text = json.dumps([kind, ingredients], sort_keys=True)
    key = hashlib.sha256(text.encode()).hexdigest()
    if key not in _items:
        _items[key] = _shared(key, build)
    return _items[key]


def _shared(key: str, build: Callable[[], bytes]) -> bytes:
    if not _folder:
        return build()
    path = _folder[0] / key
    if not path.is_file():
        data = build()
        with NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(data)
        Path(file.name).replace(path)
    return path.read_bytes()
