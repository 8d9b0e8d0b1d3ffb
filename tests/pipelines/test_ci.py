"""`doit ci`: many recipes, one table, files for what runs it; a fault stops nothing else."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml

from pipelines.builds import ci_builds
from pipelines.commands import ci
from pipelines.documents.board_files import list_boards
from pipelines.errors import UserError
from pipelines.new_folder import folder_files
from pipelines.output import junit
from tests.pipelines.fake_clone import ROOT, Clone

WORKFLOW = ROOT / ".github/workflows/packages.yml"


def test_it_goes_on_after_a_fault(clone: Clone) -> None:
    clone.write("recipes/ci/fine.yaml", "extends: toy\n")
    clone.write(
        "recipes/ci/broken.yaml", "extends: toy\nlayers: [{match: conv2, algorithm: mac8}]\n"
    )
    clone.write("recipes/ci/unread.yaml", "extends: toy\nhardwear: rpi3\n")
    given = ("json=ci.json", "junit=ci.xml", "jobs=2")

    out, err = clone.doit("ci", *given, expect=1)

    lines = out.splitlines()
    assert [line.split()[:3] for line in lines[2:5]] == [
        ["ci/broken", "rpi3", "failed"],
        ["ci/fine", "rpi3", "built"],
        ["ci/unread", "-", "failed"],
    ], out
    assert "FAULT: legalizing: conv2: no 8-bit kernel" in lines[2]
    assert "2 golden samples exact, in a test" in lines[3]
    assert "FAULT: recipes/ci/unread.yaml:2:1: hardwear: " in lines[4]
    assert lines[5] == "1 verified, 0 built and not run, 2 failed"
    assert "ERROR: ci: 2 of 3 recipes failed: ci/broken, ci/unread" in err
    assert "3/3  ci/" in err, "progress, beside the table"
    assert clone.package("fine"), "the others are built"
    rows = {row["recipe"]: row for row in json.loads((clone.root / "ci.json").read_text())}
    assert [rows[f"ci/{name}"]["status"] for name in ("broken", "fine", "unread")] == [3, 0, 3]

    suite = ElementTree.parse(clone.root / "ci.xml").getroot()[0]
    assert (suite.get("tests"), suite.get("errors"), suite.get("skipped")) == ("3", "2", "0")
    broken, fine, unread = suite
    assert (broken.get("classname"), broken.get("name")) == ("rpi3", "ci/broken")
    # Both are built at once, and either may be the first to need the model.
    assert broken[0].tag == "error"
    assert re.match(r"zoo +(built|cached)\b", str(broken[0].text))
    assert fine.find("system-out") is not None
    assert "did you mean 'hardware'?" in str(unread[0].text), "the whole, not its first line"


def test_what_is_cached_says_how_it_was_verified_and_what_cannot_run_why(clone: Clone) -> None:
    clone.doit("build", "recipe=toy")
    out, _ = clone.doit("ci")
    assert "cached" in out and "2 golden samples exact, in a test" in out, "all, without recipes/ci"

    clone.environment["FAKE_NO_EMULATOR"] = "1"
    _, err = clone.doit("ci", "golden.seed=1", expect=3)
    assert "`doit ci` does not heed it" in err
    clone.write("recipes/other.yaml", "extends: toy\ngolden: {seed: 1}\n")
    out, _ = clone.doit("ci", "recipes=other", "junit=ci.xml")
    assert "not run: the emulator is not installed; run: pip install -e .[emulator]" in out
    assert ElementTree.parse(clone.root / "ci.xml").getroot()[0].get("skipped") == "1"


def test_recipes_by_name_pattern_and_path() -> None:
    assert ci.chosen("ci/levels_rpi*,digits_a2w2_host,ci/levels_rpi3") == [
        "ci/levels_rpi3",
        "ci/levels_rpi3_armv7",
        "ci/levels_rpi4",
        "ci/levels_rpi5",
        "ci/levels_rpi_zero2w",
        "digits_a2w2_host",
    ]
    path = ROOT / "recipes/digits_a2w2_host.yaml"
    assert ci.chosen(str(path)) == [str(path)]
    assert all(name.startswith("ci/") for name in ci.chosen(None))
    with pytest.raises(UserError, match="recipes=digits_a2w2: matches no recipe; did you mean"):
        ci.chosen("digits_a2w2")
    with pytest.raises(UserError, match="names none"):
        ci.chosen(",")


def test_junit_holds_whatever_a_build_writes() -> None:
    odd = ci_builds.parse_output(
        "ci/a", "rpi3", 1.0, "verifying  skipped   \x1b[31mno\x00 \ud800\N{BELL}\n"
    )
    died = ci_builds.Built("ci/b", None, "failed", None, "<&>", 1, 0.5, "]]> & \x07")
    cases = ElementTree.fromstring(junit.text([odd, died]))[0]
    assert [case[0].tag for case in cases] == ["skipped", "failure"]
    assert cases[1][0].get("message") == "<&>" and "]]> &" in str(cases[1][0].text)


def test_workflows_are_such_and_one_builds_for_every_board(tmp_path: Path) -> None:
    """Checked against the schema that the checker brings along: no network."""
    pytest.importorskip("check_jsonschema", reason="pip install -e '.[test]'")
    users = tmp_path / "users.yaml"
    users.write_text(folder_files.files("bitkiln")[".github/workflows/bitkiln.yaml"])
    command = ("check_jsonschema", "--builtin-schema", "vendor.github-workflows")
    done = subprocess.run(
        [sys.executable, "-m", *command, str(WORKFLOW), str(users)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    jobs = yaml.safe_load(WORKFLOW.read_text())["jobs"]
    assert jobs["packages"]["strategy"]["matrix"]["board"] == sorted(list_boards())
