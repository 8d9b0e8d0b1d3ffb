"""The variables of the command line: which are known, and what they change."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.documents import fields
from pipelines.errors import UserError
from pipelines.recipe import overrides
from pipelines.recipe.load import load_recipe
from pipelines.recipe.recipe import Recipe

NAME = "resnet18_a2w1_rpi3"


def refused(argv: list[str]) -> str:
    with pytest.raises(UserError) as caught:
        overrides.parse(argv)
    return str(caught.value)


def test_tells_variables_of_commands_from_fields() -> None:
    argv = ["-n", "2", "build", "recipe=x", "schedule.trials=0", "json=out.json", "--db-file=x"]
    found = overrides.parse(argv)
    assert found.command == {"recipe": "x", "json": "out.json"}
    assert found.fields == {"schedule.trials": "0"}
    assert found.recipe == "x"
    assert overrides.parse(["list"]).recipe is None


def test_a_value_may_hold_anything() -> None:
    found = overrides.parse(["recipe=a=b.yaml", "description=x = [y]", "hardware="])
    assert found.recipe == "a=b.yaml"
    assert found.fields == {"description": "x = [y]", "hardware": ""}


def test_misspelt_variables_are_refused_with_what_was_meant() -> None:
    assert refused(["build", "recip=x", "schedule.trails=5"]) == (
        "command line: recip: unknown variable; did you mean 'recipe'?\n"
        "    recip=x\n"
        "    ^^^^^\n"
        "command line: schedule.trails: unknown variable; did you mean 'schedule.trials'?\n"
        "    schedule.trails=5\n"
        "    ^^^^^^^^^^^^^^^"
    )


@pytest.mark.parametrize(
    ("argument", "meant"),
    [
        ("trails=5", "schedule.trials"),
        ("quantization.weights.bit=1", "quantization.weights.bits"),
        ("hardwear=rpi3", "hardware"),
        ("imput=x.npy", "input"),
        ("formats=[shared]", "package.formats"),
    ],
)
def test_suggests(argument: str, meant: str) -> None:
    assert f"did you mean '{meant}'?" in refused([argument])


@pytest.mark.parametrize(
    "argument", ["zzz=1", "extends=base", "schedule.=1", ".trials=1", "a..b=1"]
)
def test_other_names_are_refused(argument: str) -> None:
    if argument.startswith("."):  # not a name=value at all: doit will not find such a task
        assert overrides.parse([argument]).fields == {}
    else:
        assert "unknown variable" in refused([argument])


def test_only_what_is_allowed_is_known() -> None:
    assert overrides.parse(["word=x"], allowed=("word",)).command == {"word": "x"}
    with pytest.raises(UserError, match="unknown variable"):
        overrides.parse(["json=x"], allowed=("word",))


def test_a_variable_stands_once() -> None:
    assert "is given twice" in refused(["recipe=a", "recipe=b"])
    assert "is given twice" in refused(["hardware=a", "hardware=b"])


def test_values_are_yaml_and_come_last() -> None:
    found = load_recipe(
        NAME,
        {
            "quantization.weights.bits": "2",
            "layers": "[{match: 'layer4.*', algorithm: mac8}]",
            "inputs.x.1.shape": "[1, 2]",
            "hardware": "rpi4",
            "description": "'010'",
        },
    )
    recipe = found.recipe
    assert recipe.quantization is not None
    assert recipe.quantization.weights.bits == 2
    assert recipe.quantization.weights.encoding == "bipolar"
    assert recipe.layers[0].algorithm == "mac8"
    assert recipe.inputs["x.1"].shape == (1, 2)
    assert found.hardware.name == "rpi4"
    assert recipe.description == "010"
    for field in ("quantization.weights.bits", "layers[0].match", "inputs.x.1.shape", "hardware"):
        assert found.origins[field] == "command line"
    assert found.origins["quantization.activations.bits"] == f"{NAME}.yaml:6"


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        (
            "quantization.weights.bits",
            "9",
            "command line: quantization.weights.bits: 9 is too large; the most is 8\n"
            "    quantization.weights.bits=9\n"
            "                              ^",
        ),
        (
            "package.formats",
            "[shared, exe]",
            "command line: package.formats[1]: 'exe' is not accepted; "
            "accepted: shared, static, executable, source, wheel\n"
            "    package.formats=[shared, exe]\n"
            "                             ^^^",
        ),
        (
            "schedule.trials",
            "on",
            "command line: schedule.trials: 'on' is a truth value in YAML 1.1 and text in 1.2; "
            "write true or false, or quote it\n"
            "    schedule.trials=on\n"
            "                    ^^",
        ),
        (
            "layers",
            "[{match: a",
            "command line: layers: this is not YAML: expected ',' or '}', but got '<stream end>'\n"
            "    layers=[{match: a\n"
            "                     ^",
        ),
        (
            "schedule",
            "{trails: 1}",
            "command line: schedule.trails: unknown field; did you mean 'trials'?\n"
            "    schedule={trails: 1}\n"
            "              ^^^^^^",
        ),
        (
            "model",
            "",
            "command line: model: expected a mapping of fields, found nothing\n"
            "    model=\n"
            "    ^^^^^",
        ),
        (
            "schedule.trails",
            "1",
            "command line: schedule.trails: unknown field; did you mean 'schedule.trials'?\n"
            "    schedule.trails=1\n"
            "    ^^^^^^^^^^^^^^^",
        ),
    ],
)
def test_points_at_the_argument(field: str, value: str, says: str) -> None:
    with pytest.raises(UserError) as caught:
        load_recipe(NAME, {field: value})
    assert str(caught.value) == says


def test_paths_are_relative_to_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "net.onnx").write_bytes(b"")
    monkeypatch.chdir(tmp_path)
    found = load_recipe(NAME, {"model": "{file: net.onnx}", "quantization": "null"})
    assert found.recipe.model.file == tmp_path / "net.onnx"
    assert found.recipe.quantization is None


@given(st.sampled_from(sorted(fields.dotted(Recipe))))
def test_every_field_of_a_recipe_can_be_named(name: str) -> None:
    written = name.replace("<name>", "some.input")
    parts = fields.split(Recipe, written)
    assert parts is not None
    assert ".".join(parts) == written


@given(st.text(max_size=40))
def test_any_text_is_a_variable_or_an_error_or_not_ours(argument: str) -> None:
    try:
        found = overrides.parse([argument])
    except UserError as error:
        assert "unknown variable" in str(error)
    else:
        assert len(found.command) + len(found.fields) <= 1


def test_no_variable_of_a_command_hides_a_field_of_recipes() -> None:
    from pipelines.command_line import VARIABLES
    from pipelines.recipe.recipe import Recipe

    assert not set(VARIABLES) & set(Recipe.model_fields)
