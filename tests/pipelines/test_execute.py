"""Which stages run when: counted through the front door, with small stages."""

from __future__ import annotations

import os
import re
import signal
import time

import pytest

from tests.pipelines.fake_clone import TOY, Clone, tree

SLOW = pytest.mark.slow
ALL = {"zoo": 1, "importing": 1, "golden": 1, "legalizing": 1, "packaging": 1} | {
    f"item:conv{n}": 1 for n in (1, 2, 3)
}
AFTER_IMPORT = {name: 1 for name in ALL if name not in ("zoo", "importing", "golden")}


def test_the_same_build_twice_runs_nothing(clone: Clone) -> None:
    assert clone.counted("build", "recipe=toy") == ALL
    first = clone.package()
    assert clone.counted("build", "recipe=toy") == {}
    assert clone.package() == first


@pytest.mark.parametrize("text", [b'{"build:zoo": {"_va', b"\x00\xff\x13garbage", b""])
def test_the_store_needs_no_database(clone: Clone, text: bytes) -> None:
    """doit keeps none here, and one that lies here from earlier says nothing."""
    clone.doit("build", "recipe=toy")
    database = clone.root / "artifacts" / ".doit.db"
    assert not database.exists()
    database.write_bytes(text)
    assert clone.counted("build", "recipe=toy") == {}
    clone.doit("list")
    clone.doit("clean", "recipe=toy")
    assert database.read_bytes() == text


def test_recipes_that_differ_in_hardware_share_the_import(clone: Clone) -> None:
    clone.doit("build", "recipe=toy")
    clone.write("recipes/other.yaml", TOY.replace("rpi3", "x86_64"))
    assert clone.counted("build", "recipe=other") == AFTER_IMPORT


def test_recipes_that_differ_in_format_share_all_before_packaging(clone: Clone) -> None:
    clone.doit("build", "recipe=toy")
    clone.write("recipes/other.yaml", f"{TOY}package: {{formats: [shared]}}\n")
    assert clone.counted("build", "recipe=other") == {"packaging": 1}
    clone.doit("build", "recipe=toy")
    assert clone.counted("build", "recipe=toy", "package.formats=[shared]") == {"packaging": 1}


def test_one_layers_precision_rebuilds_it_its_neighbour_and_the_link(clone: Clone) -> None:
    clone.doit("build", "recipe=toy")
    clone.write("recipes/other.yaml", f"{TOY}layers: [{{match: conv2, weights: {{bits: 3}}}}]\n")
    counted = clone.counted("build", "recipe=other")
    assert {name for name in counted if name.startswith("item:")} == {"item:conv2", "item:conv3"}
    assert counted["packaging"] == 1


def test_a_comment_rebuilds_nothing(clone: Clone) -> None:
    clone.doit("build", "recipe=toy")
    for name in ("importing/__init__.py", "importing/zoo.py", "packaging/__init__.py", "log.py"):
        path = clone.root / "stages" / name
        path.write_text(f"# a comment\n{path.read_text()}\n\n# another\n")
    clone.edit("recipes/toy.yaml", "description: a toy", "description: another toy  # text")
    clone.edit("hw/boards/rpi3.yaml", "description:", "# a comment\ndescription:")
    assert clone.counted("build", "recipe=toy") == {}


def test_other_costs_of_the_core_rebuild_what_they_decide(clone: Clone) -> None:
    clone.doit("build", "recipe=toy")
    clone.edit("hw/cores/cortex-a53.yaml", "description:", "# a comment\ndescription:")
    clone.edit("hw/cores/cortex-a72.yaml", "latency: 3,", "latency: 7.5,")
    assert clone.counted("build", "recipe=toy") == {}
    clone.edit("hw/cores/cortex-a53.yaml", "latency: 4,", "latency: 7.5,")
    counted = clone.counted("build", "recipe=toy")
    assert counted and {"zoo", "importing", "golden"}.isdisjoint(counted)


def test_a_stage_whose_input_came_out_the_same_is_not_run(clone: Clone) -> None:
    clone.doit("build", "recipe=toy")
    clone.edit("stages/importing/zoo.py", 'ran("zoo")', 'ran("zoo")\n    unused = 1')
    assert clone.counted("build", "recipe=toy") == {"zoo": 1}
    clone.edit("stages/importing/zoo.py", 'f"net ', 'f"nets ')
    assert clone.counted("build", "recipe=toy") == {
        "zoo": 1,
        "importing": 1,
        "golden": 1,
        "packaging": 1,
    }


def test_code_edited_while_it_runs_leaves_nothing(clone: Clone) -> None:
    clone.edit(
        "stages/legalizing/__init__.py",
        "    time.sleep",
        "    with open(__file__, 'a') as file:\n"
        "        file.write(f'X{time.time_ns()} = 1\\n')\n"
        "    time.sleep",
    )
    _, err = clone.doit("build", "recipe=toy", expect=3)
    assert err == (
        "ERROR: legalizing: stages/legalizing/__init__.py changed while it ran, so its result is "
        "not kept; build again\n"
    )
    assert clone.manifests("legalizing") == []


def test_a_file_is_known_by_its_bytes(clone: Clone) -> None:
    net = clone.write("models/net.onnx", "net 2 0")
    clone.write("recipes/file.yaml", "model: {file: ../models/net.onnx}\nhardware: rpi3\n")
    counted = clone.counted("build", "recipe=file")
    assert counted == {name: 1 for name in ALL if name != "zoo"}
    net.rename(clone.root / "models" / "moved.onnx")
    clone.edit("recipes/file.yaml", "net.onnx", "moved.onnx")
    assert clone.counted("build", "recipe=file") == {}
    clone.write("models/moved.onnx", "net 3 0")
    assert clone.counted("build", "recipe=file") == counted


def test_jobs_and_folders_are_no_ingredients(clone: Clone) -> None:
    clone.doit("build", "recipe=toy")
    first = tree(clone.root / "artifacts")
    moved = clone.root.rename(clone.root.with_name("moved"))
    clone.root, clone.log = moved, moved / "log.txt"
    assert clone.counted("build", "recipe=toy") == {}
    for artifact in (moved / "artifacts").iterdir():
        artifact.rename(moved.parent / artifact.name)
    assert clone.counted("-n", "2", "build", "recipe=toy") == ALL
    assert tree(moved / "artifacts") == first
    assert not any(b"clone" in data or b"moved" in data for data in first.values())


def test_a_build_killed_at_any_moment_is_finished_by_the_next(clone: Clone) -> None:
    clone.environment["FAKE_SLEEP"] = "30"
    process = clone.start("build", "recipe=toy")
    deadline = time.monotonic() + 60
    while "legalizing" not in clone.runs() and time.monotonic() < deadline:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    del clone.environment["FAKE_SLEEP"]
    assert clone.counted("build", "recipe=toy") == AFTER_IMPORT
    assert not any(data == b"" for data in clone.package().values())


def test_ctrl_c_says_one_sentence(clone: Clone) -> None:
    clone.environment["FAKE_SLEEP"] = "30"
    process = clone.start("build", "recipe=toy")
    deadline = time.monotonic() + 60
    while "legalizing" not in clone.runs() and time.monotonic() < deadline:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode != 0
    assert (
        err.strip() == "interrupted; what was finished is kept, and the same command goes on there"
    )


def test_two_builds_at_once_are_both_right(clone: Clone) -> None:
    clone.environment["FAKE_SLEEP"] = "0.5"
    both = [clone.start("build", "recipe=toy") for _ in range(2)]
    for process in both:
        _, err = process.communicate(timeout=120)
        assert (process.returncode, err) == (0, "")
    assert clone.counted("build", "recipe=toy") == {}
    assert set(clone.package()) >= {"added", "formats"}


@pytest.mark.parametrize("part", [pytest.param("manifest.json", marks=SLOW), "files/table.json"])
@pytest.mark.parametrize("how", ["truncated", pytest.param("removed", marks=SLOW), "changed"])
def test_a_damaged_artifact_is_built_again(clone: Clone, part: str, how: str) -> None:
    clone.doit("build", "recipe=toy")
    first = clone.package()
    path = clone.manifests("legalizing")[0].parent / part
    text = path.read_text()
    if how == "removed":
        path.unlink()
    else:
        path.write_text(text[:-9] if how == "truncated" else text.replace("conv1", "conv9"))
    # Something that must read it: a change of content of the same size is found only then.
    _, err = clone.doit("build", "recipe=toy", "package.formats=[static]")
    clone.doit("build", "recipe=toy")
    assert clone.package() == first
    if not (how == "changed" and part == "manifest.json"):
        assert "warning: artifact legalizing/" in err and "building it again" in err


def test_a_damaged_tensor_is_built_again(clone: Clone) -> None:
    clone.doit("build", "recipe=toy")
    for blob in (clone.root / "artifacts" / "blobs").glob("*/*"):
        blob.write_bytes(blob.read_bytes()[:-1])
    out, err = clone.doit("build", "recipe=toy")
    assert "golden          built" in out and "warning: artifact golden/" in err


def test_many_damaged_tensors_are_mended_in_one_run(clone: Clone) -> None:
    """Of the same size, so that they are found when they are read."""
    clone.edit(
        "stages/importing/__init__.py",
        'Golden({"x": x}, {"y": x + len(source)})',
        'Golden({"x": x}, {"y": x + len(source)} | {f"z{n}": x * n for n in range(9)})',
    )
    clone.environment["FAKE_NO_EMULATOR"] = "1"
    clone.doit("build", "recipe=toy")
    first = clone.package()
    for blob in (clone.root / "artifacts" / "blobs").glob("*/*"):
        blob.write_bytes(blob.read_bytes()[:-1] + b"!")
    _, err = clone.doit("build", "recipe=toy", "package.formats=[static]")
    assert err.count("\n") == 1 and "more parts are damaged; building it again" in err
    clone.doit("build", "recipe=toy")
    assert clone.package() == first


def test_a_disk_that_keeps_nothing_is_named(clone: Clone) -> None:
    checked = "        self._refuse(manifest, damaged)\n        return Parts("
    lost = checked.replace("damaged", 'damaged or ["x"] * (manifest.stage == "golden")')
    clone.edit("pipelines/store/store.py", checked, lost)
    _, err = clone.doit("build", "recipe=toy", expect=3)
    *warnings, said = err.splitlines()
    assert len(warnings) == 3 and "Traceback" not in err
    assert re.fullmatch(
        r"ERROR: artifacts/golden/\w+: was written 3 times and never read back as it was; "
        "look at the disk, or keep the artifacts on another",
        said,
    )


def test_a_damaged_package_is_shown_whole_again(clone: Clone) -> None:
    clone.doit("build", "recipe=toy")
    first = clone.package()
    (clone.root / "artifacts/packages/toy/lib/conv1.o").unlink()
    clone.write("artifacts/packages/toy/stray", "x")
    clone.doit("build", "recipe=toy")
    assert clone.package() == first


@pytest.mark.parametrize(
    "removed",
    ["", *(pytest.param(name, marks=SLOW) for name in ("blobs", "importing", "packaging"))]
    + [pytest.param(name, marks=SLOW) for name in ("items", "roots")],
)
def test_what_was_deleted_comes_back(clone: Clone, removed: str) -> None:
    clone.doit("build", "recipe=toy")
    first, kept = clone.package(), tree(clone.root / "artifacts")
    path = clone.root / "artifacts" / removed
    path.rename(clone.root.parent / "gone")
    clone.doit("build", "recipe=toy")
    assert clone.package() == first
    rebuilt = tree(clone.root / "artifacts")
    if removed != "items":  # items come back when they are wanted: packaging is cached
        assert rebuilt == kept


@SLOW
def test_clean_takes_only_what_no_other_recipe_uses(clone: Clone) -> None:
    clone.doit("build", "recipe=toy")
    clone.write("recipes/other.yaml", TOY.replace("rpi3", "x86_64"))
    clone.doit("build", "recipe=other")
    before = tree(clone.root / "artifacts")
    out, _ = clone.doit("clean", "-n", "recipe=other")
    assert "would remove artifacts/packages/other" in out
    assert tree(clone.root / "artifacts") == before
    clone.doit("clean", "recipe=other")
    assert clone.counted("build", "recipe=toy") == {}
    assert not (clone.root / "artifacts" / "packages" / "other").exists()
    assert clone.counted("build", "recipe=other") == AFTER_IMPORT
    clone.doit("clean", "recipe=other")
    clone.doit("clean", "recipe=toy")
    assert tree(clone.root / "artifacts") == {}


def test_a_build_ends_with_a_verified_package(clone: Clone) -> None:
    out, _ = clone.doit("build", "recipe=toy")
    assert "verifying       built" in out and "2 golden samples exact, in a test" in out
    assert "artifacts/packages/toy" in out
    clone.environment["FAKE_OFF"] = "0.25"
    clone.doit("build", "recipe=toy")  # known to be right: this very package was verified
    clone.write("recipes/ci/nested.yaml", "extends: toy\n")
    _, err = clone.doit("build", "recipe=ci/nested", "golden.samples=3", expect=1)
    assert err == (
        "ERROR: verifying: output 'y' differs from the golden one in 18 of 18 values, by at "
        "most 0.25; `doit verify recipe=ci/nested golden.samples=3 passes=all` says since when\n"
    )


def test_a_package_that_cannot_run_here_is_built_and_that_is_said(clone: Clone) -> None:
    clone.environment["FAKE_NO_EMULATOR"] = "1"
    out, _ = clone.doit("build", "recipe=toy")
    assert "verifying       skipped" in out and "the emulator is not installed" in out
    del clone.environment["FAKE_NO_EMULATOR"]
    out, _ = clone.doit("build", "recipe=toy")
    assert "verifying       built" in out
