"""What gc removes: never what is needed or new, the oldest first, and enough if that can be."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pipelines.caching import eviction, local_store
from pipelines.caching.eviction import GRACE, Result
from pipelines.store import keys, roots
from pipelines.store.manifest import Parts
from pipelines.store.store import Store

NOW = 1e9
DIGESTS = {name: size for size, name in enumerate("abcdef", 1)}


@st.composite
def stores(draw: st.DrawFn) -> list[Result]:
    count = draw(st.integers(0, 8))
    ages = st.one_of(st.floats(0, 2 * GRACE), st.sampled_from([GRACE, 10 * GRACE]))
    return [
        Result(
            str(index),
            NOW - draw(ages),
            draw(st.integers(0, 5)),
            {name: DIGESTS[name] for name in draw(st.sets(st.sampled_from("abcdef"), max_size=3))},
        )
        for index in range(count)
    ]


@given(stores(), st.sets(st.sampled_from("01234567")), st.integers(0, 60))
def test_the_laws_of_gc(results: list[Result], needed: set[str], limit: int) -> None:
    removed = eviction.choose(results, needed, limit, NOW)
    assert len(set(removed)) == len(removed)
    assert not needed & set(removed)
    free = {r.name: r for r in results if r.name not in needed and NOW - r.used >= GRACE}
    assert set(removed) <= set(free)
    left = [r for r in results if r.name not in removed]
    assert eviction.total(left) <= limit or set(removed) == set(free)
    # The least recently used go first, and the last of them was not one too many.
    kept = [r.used for name, r in free.items() if name not in removed]
    assert not removed or not kept or max(free[name].used for name in removed) <= min(kept)
    if removed:
        before = [r for r in results if r.name not in removed[:-1]]
        assert eviction.total(before) > limit


@given(stores(), st.floats(0, 10 * GRACE))
def test_what_is_too_old_goes_though_there_is_room(results: list[Result], oldest: float) -> None:
    removed = eviction.choose(results, (), 10**9, NOW, oldest)
    old = {r.name for r in results if NOW - r.used > oldest and NOW - r.used >= GRACE}
    assert set(removed) == old


def test_a_recipe_finds_all_it_needs_after_gc(tmp_path: Path) -> None:
    store = Store(tmp_path / "artifacts")
    shared = np.arange(1000, dtype=np.int32)
    used = keys.digest("used item")
    made = {}
    for name in ("needed", "orphan"):
        parts = Parts({"m": name.encode()}, {"w": shared, "own": np.full(500, len(name))})
        items = (f"items/kernel/{used}",) if name == "needed" else ()
        made[name] = store.commit("importing", keys.digest(name), "model", parts, {}, items)
    for key in (used, keys.digest("orphan item")):
        store.commit("items/kernel", key, "files", Parts({"content": b"x" * 999}, {}), {})
    roots.note(store, "toy", {"importing": made["needed"].key})
    assert local_store.collect(store, 0) == []  # all of it is new
    for path in store.root.rglob("manifest.json"):
        os.utime(path, (0, 0))
    removed = local_store.collect(store, 0)
    orphan = keys.digest("orphan item")[:12]
    assert sorted(removed) == [f"importing/{made['orphan'].key[:12]}", f"items/kernel/{orphan}"]
    assert set(store.read(made["needed"]).tensors) == {"w", "own"}
    assert store.has("items/kernel", used)
    assert len(list(store.root.glob("blobs/*/*"))) == 2


def test_verify_finds_and_removes_what_was_changed(tmp_path: Path) -> None:
    store = Store(tmp_path / "artifacts")
    made = store.commit("importing", keys.digest("a"), "files", Parts({"f": b"abc"}, {}), {})
    assert local_store.verify(store) == (1, [])
    (store.folder("importing", made.key) / "files" / "f").write_bytes(b"abd")
    assert local_store.verify(store) == (0, [f"importing/{made.key[:12]}"])
    assert store.manifest("importing", made.key) is None
