"""Items that all recipes share, and which artifacts each recipe is noted to use."""

from __future__ import annotations

import numpy as np
import pytest

from pipelines.store import keys, roots
from pipelines.store.items import Memo
from pipelines.store.manifest import Parts
from pipelines.store.store import Store
from tests.pipelines.committed import PARTS, commit


def test_an_item_is_built_once_for_its_problem(artifacts: Store) -> None:
    built = []

    def build() -> bytes:
        built.append(1)
        return b"text"

    memo = Memo(artifacts, "code", {"tvm": "1"})
    assert memo("kernel", {"k": 3, "layout": [1, 2]}, build) == b"text"
    assert memo("kernel", {"layout": [1, 2], "k": 3}, build) == b"text"
    assert len(built) == len(memo.new) == 1
    memo("kernel", {"k": 5}, build)
    Memo(artifacts, "other code", {"tvm": "1"})("kernel", {"k": 5}, build)
    Memo(artifacts, "code", {"tvm": "2"})("kernel", {"k": 5}, build)
    assert len(built) == 4 and len(memo.used) == 2


def test_a_damaged_item_is_built_again(artifacts: Store) -> None:
    memo = Memo(artifacts, "code", {})
    memo("kernel", {"k": 3}, lambda: b"text")
    (path,) = artifacts.root.glob("items/kernel/*/files/content")
    path.write_bytes(b"tex!")
    assert memo("kernel", {"k": 3}, lambda: b"text") == b"text"
    assert path.read_bytes() == b"text"


@pytest.mark.parametrize("kind", ["", "Kernel", "../x", "a b"])
def test_an_items_kind_is_a_plain_word(artifacts: Store, kind: str) -> None:
    with pytest.raises(ValueError, match="cannot name a kind"):
        Memo(artifacts, "code", {})(kind, {}, bytes)


def test_roots_remember_the_latest_first(artifacts: Store) -> None:
    for key in ("1", "2", "1", "3"):
        roots.note(artifacts, "net", {"importing": key})
    assert roots.of(artifacts, "net") == {"importing": ["3", "1", "2"]}
    for number in range(50):
        roots.note(artifacts, "net", {"importing": str(number)})
    assert len(roots.of(artifacts, "net")["importing"]) == roots.HISTORY


def test_damaged_roots_are_no_roots(artifacts: Store) -> None:
    roots.note(artifacts, "net", {"importing": "1"})
    (artifacts.root / "roots" / "net.json").write_text('{"importing": ')
    assert roots.of(artifacts, "net") == {}
    roots.note(artifacts, "net", {"importing": "2"})
    assert roots.of(artifacts, "net") == {"importing": ["2"]}


def test_clean_leaves_what_another_recipe_uses(artifacts: Store) -> None:
    shared, own = keys.digest("shared"), keys.digest("own")
    commit(artifacts, key=shared)
    commit(artifacts, Parts({}, {"only": np.ones(3)}), key=own)
    roots.note(artifacts, "a", {"importing": shared})
    roots.note(artifacts, "b", {"importing": shared})
    roots.note(artifacts, "a", {"importing": own})
    assert roots.clean(artifacts, "a", "importing", dryrun=True) == [f"importing/{own[:12]}"]
    assert artifacts.has("importing", own)
    assert roots.clean(artifacts, "a", "importing", dryrun=False) == [f"importing/{own[:12]}"]
    assert artifacts.has("importing", shared) and not artifacts.has("importing", own)
    assert len(list(artifacts.root.glob("blobs/*/*"))) == len(PARTS.tensors)
    assert roots.of(artifacts, "a") == {}
    roots.clean(artifacts, "b", "importing", dryrun=False)
    assert not list(artifacts.root.glob("blobs/*/*"))
