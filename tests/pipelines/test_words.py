"""Each command refuses what it does not heed, by one table; and names of any length are names."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from pipelines import command_line, command_words, menu
from pipelines.errors import UserError
from pipelines.recipe.overrides import parse
from tests.pipelines.fake_clone import ROOT, Clone, tree

LONG = 5000 * "x"


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Clone:
    """A clone for lines that build nothing."""
    return Clone(tmp_path_factory.mktemp("told"))


def refused(*argv: str) -> str:
    with pytest.raises(UserError) as caught:
        command_words.check(command_words.named(argv), parse(argv, command_line.VARIABLES))
    return str(caught.value)


@pytest.mark.parametrize(
    ("argv", "names"),
    [
        (["-n", "2", "build", "recipe=x"], ("build",)),
        (["build:packaging", "recipe=x"], ("build",)),
        (["build", "show", "recipe=x"], ("build", "show")),
        (["run", "recipe=x", "input=y"], ("run",)),
        (["run", "build", "recipe=x"], ("build",)),
        (["import", "build"], ("import",)),
        (["list", "build"], ("list",)),
        (["recipe=x"], ()),
        (["biuld", "recipe=x"], ()),
    ],
)
def test_the_commands_of_a_line(argv: list[str], names: tuple[str, ...]) -> None:
    assert command_words.named(argv) == names


def test_what_a_command_does_not_heed_is_refused_with_what_it_does() -> None:
    assert refused("build", "recipe=x", "json=r.json") == (
        "command line: json: `doit build` does not heed it; accepted: recipe, a recipe's fields, "
        "board, executor, scheduler\n"
        "    json=r.json\n"
        "    ^^^^"
    )
    assert "`doit import` does not heed it; accepted: file, json" in refused("import", "out=x")
    assert "hardware: `doit doctor` does not heed it" in refused("doctor", "hardware=rpi3")
    assert "recipe: `doit recipes` does not heed it" in refused("recipes", "recipe=x")
    assert "peers: `doit bench` does not" in refused("bench", "recipe=x", "layer=all", "peers=all")
    assert "json: `doit list` does not" in refused("list", "recipe=x", "json=x")
    assert "bitkiln keeps none" in refused("ignore", "build", "recipe=x")


def test_what_any_of_the_commands_heeds_is_accepted() -> None:
    for argv in (
        ["build", "show", "recipe=x", "json=y", "golden.seed=1"],
        ["clean", "recipe=x", "hardware=rpi3"],
        ["bench", "recipe=x", "grow=all", "repeat=2", "threads=1"],
        ["conformance", "a", "samples=3"],
    ):
        command_words.check(command_words.named(argv), parse(argv, command_line.VARIABLES))


@pytest.mark.parametrize("command", menu.COMMANDS, ids=lambda command: command.name)
def test_the_table_is_of_what_a_command_s_own_files_read(command: menu.Command) -> None:
    """Its module, and what all commands share, ask for these variables and for no others."""
    text = (ROOT / "pipelines" / "commands" / f"{command.module}.py").read_text()
    asked = set(re.findall(r"command(?:\.get\(|\[)\"([\w.]+)\"", text))
    asked |= set(re.findall(r"\b(threads|samples|repeat|jobs)\(variables\)", text))
    asked |= set(re.findall(r"required_path\(\s*variables, \"(\w+)\"", text))
    given = {*command.takes, *command.instead}
    assert given == asked


def test_options_that_do_nothing_are_refused_at_the_door(clone: Clone) -> None:
    _, err = clone.doit("build", "recipe=toy", "json=r.json", expect=3)
    assert err.startswith("ERROR: command line: json: `doit build` does not heed it")
    assert not (clone.root / "artifacts").exists()


TOY = "did you mean: `doit build recipe=toy`"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("biuld recipe=toy", f"no command 'biuld'; {TOY}"),
        ("-n 2 bulid recipe=toy", f"no command 'bulid'; {TOY}"),
        ("build toy", "'toy' is a recipe; say: `doit build recipe=toy`"),
        ("toy", "'toy' is a recipe; say: `doit build recipe=toy`"),
        ("show toy layer=all", "'toy' is a recipe; say: `doit show recipe=toy layer=all`"),
        ("clean toy", "'toy' is a recipe; say: `doit clean recipe=toy`"),
        ("build recipes/toy.yaml", "'recipes/toy.yaml' is a recipe; say: "
         "`doit build recipe=recipes/toy.yaml`"),
        ("build recipe", "'recipe' is a variable; say: `doit build recipe=NAME`"),
        ("build recipe toy", "'recipe' is a variable; say: `doit build recipe=toy`"),
        ("build recipe = toy", "'recipe' is a variable; say: `doit build recipe=toy`"),
        ("build recipe =toy", "'recipe' is a variable; say: `doit build recipe=toy`"),
        ("build recipe=toy hardware rpi4",
         "'hardware' is a variable; say: `doit build recipe=toy hardware=rpi4`"),
        ("build tooy", f"no command and no recipe 'tooy'; {TOY}"),
        ("build quux", "no recipe 'quux'; `doit recipes` says which there are"),
        ("build quux recipe=toy", "'quux' is no command; `doit help` says which there are"),
        ("quux", "no command 'quux'; `doit help` says which there are"),
        ("recipe=toy", "recipe=toy: say what to do with it, for example: "
         "`doit build recipe=toy`; `doit help` says which there are"),
        ("log.onnx", "'log.onnx' is a model file; say: `doit import log.onnx`"),
    ],
)  # fmt: skip
def test_a_word_that_is_no_command_gets_the_line_that_was_meant(
    told: Clone, line: str, says: str
) -> None:
    (told.root / "log.onnx").write_text("")
    assert told.doit(*line.split(), expect=3) == ("", f"ERROR: {says}\n")


@pytest.mark.parametrize(
    ("field", "says"),
    [
        ("inputs.z.shape=[2,3]", "inputs.z: the model has no such input; accepted: x"),
        ("inputs.x.shape=[2,4]", "inputs.x.shape: says [2, 4], but the model has [2, 3]"),
        ("outputs.z.postprocess=softmax", "outputs.z: the model has no such output; accepted: y"),
    ],
)
def test_show_refuses_names_and_shapes_that_are_not_the_models(
    clone: Clone, field: str, says: str
) -> None:
    _, err = clone.doit("show", "recipe=toy", field, expect=3)
    assert err.startswith(f"ERROR: command line: {says}\n")
    clone.doit("show", "recipe=toy", "inputs.x.shape=[2,3]")
    assert tree(clone.root / "artifacts") == {}  # nothing was built for that


@pytest.mark.parametrize(
    "arguments",
    [
        ["show", "recipe=toy", "quantization=null", f"model={{file: {LONG}.onnx}}"],
        ["show", "recipe=toy", "quantization=null", 'model={file: "a\\0b.onnx"}'],
        ["show", "recipe=toy", "quantization=null", "model={file: ~nobody/a.onnx}"],
        ["show", "recipe=toy", f"hardware={LONG}.yaml"],
        ["show", "recipe=toy", f"hardware={LONG}"],
        ["show", f"recipe={LONG}"],
        ["show", f"recipe={LONG}.yaml"],
        ["run", "recipe=toy", f"input={LONG}.npy"],
        ["run", "recipe=toy", "input=x.npy", f"out={LONG}.npz"],
        ["import", f"{LONG}.onnx"],
        ["conformance", LONG],
        ["recipes", f"json={LONG}"],
        ["accuracy", "recipe=toy", f"evaluation.data={LONG}.npz"],
        ["build", "recipe=toy", 'outputs={y: {labels: "a\\0b"}}'],
    ],
    ids=lambda value: value[0] if isinstance(value, list) else str(value),
)
def test_any_name_is_a_name(clone: Clone, arguments: list[str]) -> None:
    np.save(clone.root / "x.npy", np.zeros((2, 3), np.float32))
    _, err = clone.doit(*arguments, expect=3)
    assert "Traceback" not in err and err.startswith("ERROR: ")
    assert err.count("ERROR") == 1 and len(err) < 2 * len(LONG) + 1000


def test_names_are_found_as_before(tmp_path: Path) -> None:
    from pipelines import paths

    (tmp_path / "a").write_text("")
    assert paths.is_file(tmp_path / "a") and not paths.is_folder(tmp_path / "a")
    assert paths.is_folder(tmp_path) and not paths.is_file(tmp_path)
    assert paths.expanded("~") == Path.home()
