"""What a newcomer asks first: `doit`, `doit help`, `doit help COMMAND`, `doit COMMAND --help`."""

from __future__ import annotations

import shlex

import pytest

from pipelines import command_line, command_words, help, hints, menu
from pipelines.documents import fields
from pipelines.recipe import load
from pipelines.recipe.overrides import parse
from pipelines.recipe.recipe import Recipe
from tests.pipelines.fake_clone import Clone

WIDTH = 100
SCREEN = 40


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Clone:
    """For all tests here: nothing is built."""
    return Clone(tmp_path_factory.mktemp("help"))


def test_alone_it_says_where_to_begin(clone: Clone) -> None:
    out, err = clone.doit()
    assert err == "" and out == f"{help.start_page()}\n"
    lines = out.splitlines()
    assert len(lines) <= SCREEN and max(map(len, lines)) <= WIDTH
    assert lines[0].startswith("bitkiln turns a quantized neural network into a C library")
    assert "doit build recipe=digits_a2w2_host" in out and "doit recipes" in out
    for command in menu.ALL:
        assert f"  {command.name} " in out or f"doit {command.examples[0]}" in out
    assert clone.doit("help") == (out, "") and clone.doit("-n", "2") == (out, "")
    for flag in ("--help", "-h"):
        assert clone.doit(flag) == (out, "")
    assert "`doit help doit` prints doit's own options" in out


def test_a_command_is_explained(clone: Clone) -> None:
    out, err = clone.doit("help", "build")
    assert err == "" and out == f"{help.page(menu.BUILD)}\n"
    for text in (menu.BUILD.doc, "  recipe= ", "  board= ", "  hardware= ", "  schedule.trials= "):
        assert text in out
    assert out.endswith("Examples\n" + "".join(f"  doit {e}\n" for e in menu.BUILD.examples))
    assert clone.doit("build", "--help") == (out, "")
    assert clone.doit("build", "recipe=none", "-h") == (out, "")


def test_words_of_doit_and_unknown_ones(clone: Clone) -> None:
    out, _ = clone.doit("help", "list")
    assert "list tasks" in out
    out, _ = clone.doit("help", "doit")
    assert "-n ARG, --process=ARG" in out and " tabcompletion " in out
    assert "0.37" in clone.doit("--version")[0]
    _, err = clone.doit("help", "biuld", expect=3)
    assert err == "ERROR: no command 'biuld'; did you mean: `doit help build`\n"
    _, err = clone.doit("help", "quux", expect=3)
    assert err == "ERROR: no command 'quux'; `doit help` says which there are\n"


@pytest.mark.parametrize("command", menu.ALL, ids=lambda command: command.name)
def test_examples_are_accepted_and_variables_are_explained(command: menu.Command) -> None:
    assert len(command.examples) == 2
    for line in command.examples:
        argv = shlex.split(line)
        assert argv[0] == command.name
        hints.check(argv, command_line.VARIABLES)
        variables = parse(argv, command_line.VARIABLES)
        command_words.check(command_words.named(argv), variables)
        if variables.recipe is not None:
            load.load_recipe(variables.recipe, variables.fields)
    page = help.page(command)
    assert all(f"  {name}= " in page for name in command.heeds)
    assert max(map(len, page.splitlines())) <= WIDTH


def test_meanings_are_of_variables_and_fields_that_there_are() -> None:
    heeded = {name for command in menu.ALL for name in command.heeds}
    assert heeded == set(menu.MEANINGS)
    assert menu.FIELDS.keys() <= set(fields.dotted(Recipe))
