"""Which artifacts each recipe uses: what `clean` may remove, and what `show` compares with."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pipelines.store.manifest import DamagedError
from pipelines.store.store import Store

HISTORY = 20
"""Keys remembered per stage, most recent first; older ones become nobody's."""

_FOLDER = re.compile(r"\w[\w.-]*")

Roots = dict[str, list[str]]


def note(store: Store, recipe: str, built: Mapping[str, str]) -> None:
    """Remember for a recipe the key that each of these stages has now."""
    known = of(store, recipe)
    if all(known.get(stage, [""])[:1] == [key] for stage, key in built.items()):
        return
    with store.lock(exclusive=True):
        before = of(store, recipe)
        after = dict(before)
        for stage, key in built.items():
            older = [other for other in before.get(stage, []) if other != key]
            after[stage] = [key, *older][:HISTORY]
        if after != before:
            text = json.dumps(after, indent=1, sort_keys=True) + "\n"
            store.write_text(_path(store, recipe), text)


def of(store: Store, recipe: str) -> Roots:
    """Return the keys a recipe used, by stage, most recent first; none if unknown or damaged."""
    with contextlib.suppress(OSError, ValueError):
        tree = json.loads(_path(store, recipe).read_text(encoding="utf-8"))
        if isinstance(tree, dict) and all(_are_keys(found) for found in tree.values()):
            return tree
    return {}


def packages(store: Store, recipe: str) -> list[str]:
    """Return the folders that a recipe's packages are shown in, that of its own name first."""
    with contextlib.suppress(OSError, ValueError):
        names = json.loads(_packages(store, recipe).read_text(encoding="utf-8"))
        if _are_keys(names) and all(_FOLDER.fullmatch(name) for name in names):
            return list(dict.fromkeys([recipe, *names]))
    return [recipe]


def note_package(store: Store, recipe: str, package: str) -> None:
    """Remember one more folder of a recipe's, unless it is known."""
    if package in packages(store, recipe):
        return
    with store.lock(exclusive=True):
        known = packages(store, recipe)
        text = json.dumps([*known[1:], package], indent=1) + "\n"
        store.write_text(_packages(store, recipe), text)


def forget_packages(store: Store, recipe: str) -> None:
    """Forget a recipe's folders: they are gone."""
    _packages(store, recipe).unlink(missing_ok=True)


def clean(store: Store, recipe: str, stage: str, *, dryrun: bool) -> list[str]:
    """Remove what one stage of a recipe left and no other recipe uses; return what went."""
    with store.lock(exclusive=True):
        mine = _artifacts(store, {stage: of(store, recipe).get(stage, [])})
        others: set[str] = set()
        for other in recipes(store):
            found = of(store, other)
            if other == recipe:
                found.pop(stage, None)
            others |= _artifacts(store, found)
        doomed = sorted(mine - others)
        if dryrun:
            return doomed
        for name in doomed:
            store.remove(store.root / name)
        _forget(store, recipe, stage)
        sweep_blobs(store)
    return doomed


def needed(store: Store) -> set[str]:
    """Return the folders, relative to the store, of all that any recipe used."""
    return {name for recipe in recipes(store) for name in _artifacts(store, of(store, recipe))}


def _are_keys(found: Any) -> bool:
    return isinstance(found, list) and all(isinstance(key, str) for key in found)


def _artifacts(store: Store, found: Roots) -> set[str]:
    """Return the folders, relative to the store, of these artifacts and of the items they used."""
    names: set[str] = set()
    for stage, kept in found.items():
        for key in kept:
            names.add(_relative(store, stage, key))
            with contextlib.suppress(DamagedError):
                manifest = store.manifest(stage, key)
                for item in manifest.items if manifest else ():
                    folder, _, item_key = item.rpartition("/")
                    names.add(_relative(store, folder, item_key))
    return names


def _relative(store: Store, stage: str, key: str) -> str:
    return str(store.folder(stage, key).relative_to(store.root))


def recipes(store: Store) -> Iterator[str]:
    """Yield the recipes that used anything of the store."""
    yield from (path.stem for path in sorted((store.root / "roots").glob("*.json")))


def _forget(store: Store, recipe: str, stage: str) -> None:
    left = of(store, recipe)
    left.pop(stage, None)
    if left:
        store.write_text(_path(store, recipe), json.dumps(left, indent=1, sort_keys=True) + "\n")
    else:
        _path(store, recipe).unlink(missing_ok=True)


def sweep_blobs(store: Store) -> None:
    """Remove tensors no artifact refers to; the caller holds the store alone."""
    kept: set[str] = set()
    for path in store.root.glob("*/*/manifest.json"):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            tree = json.loads(path.read_bytes())
            kept |= {tensor["sha256"] for tensor in tree["tensors"]}
    for blob in store.root.glob("blobs/*/*"):
        if blob.name not in kept:
            blob.unlink(missing_ok=True)


def _path(store: Store, recipe: str) -> Path:
    return store.root / "roots" / f"{recipe}.json"


def _packages(store: Store, recipe: str) -> Path:
    return store.root / "roots" / f"{recipe}.packages"
