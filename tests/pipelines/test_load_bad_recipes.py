"""Each recipe in tests/bad_recipes beside the exact message it must produce.

BITKILN_UPDATE_GOLDEN=1 writes the messages anew; read the difference before committing it.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pipelines.errors import UserError
from pipelines.recipe.load import load_recipe

ROOT = Path(__file__).resolve().parents[2]
BAD = sorted((ROOT / "tests" / "bad_recipes").glob("*.yaml"))


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_says_exactly_what_is_wrong(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    with pytest.raises(UserError) as caught:
        load_recipe(str(path.relative_to(ROOT)))
    said = str(caught.value).replace(str(ROOT), "ROOT") + "\n"
    golden = path.with_suffix(".txt")
    if os.environ.get("BITKILN_UPDATE_GOLDEN"):
        golden.write_text(said, encoding="utf-8")
    assert said == golden.read_text(encoding="utf-8")
