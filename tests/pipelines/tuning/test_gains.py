"""What trials gain, from a made-up ledger whose answer is known."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.tuning import gains, ledger
from pipelines.tuning.ledger import Trial
from tests.pipelines.tuning.test_ledger import trial

PREDICTED, FROM_NOTHING, FROM_OTHERS = gains.ORDERS
SIZES = {"first": (64, (56, 28, 14, 7)), "second": (32, (48, 24, 12, 6))}
"""Channels and sizes of the layers of two recipes."""
SECONDS = {"3x3": 0.003, "1x1": 0.001}
SHAPES = {
    recipe: [
        f"{window}s1x1_{channels}to{channels}_{size}x{size}" for window in SECONDS for size in sizes
    ]
    for recipe, (channels, sizes) in SIZES.items()
}


def made_up(recipe: str, shape: str) -> list[Trial]:
    """Five kernels, of which the one predicted to be the dearest takes half of the default's time,
    and the second best 0.9 of it."""
    ratios = {"2x32": 1.1, "3x32": 1.0, "4x32": 0.9, "5x32": 1.2, "4x16": 0.5}
    seconds = SECONDS[shape[:3]]
    return [
        trial(
            f"mac8_dot4_{tile}_none_avx2",
            ratio,
            workloads=(f"u8s8 {shape}",),
            against="mac8_dot4_6x32_none_avx2",
            predicted=1.1 + number / 20,
            seconds=ratio * seconds,
            against_seconds=seconds,
            recipe=recipe,
        )
        for number, (tile, ratio) in enumerate(ratios.items())
    ]


def all_of_them() -> list[Trial]:
    return [
        line
        for recipe, shapes in SHAPES.items()
        for shape in shapes
        for line in made_up(recipe, shape)
    ]


def by_order(found: list[gains.Gain]) -> dict[tuple[str, str], gains.Gain]:
    return {(gain.recipe, gain.order): gain for gain in found}


def test_trials_that_layers_need() -> None:
    found = by_order(gains.gains(all_of_them()))
    recipes = ("first", "second", "all")
    assert set(found) == {(recipe, order) for recipe in recipes for order in gains.ORDERS}
    for (recipe, order), gain in found.items():
        assert gain.layers == (16 if recipe == "all" else 8) and gain.kernels == 5 * gain.layers
        assert gain.best == pytest.approx(0.5)
        # The best comes last as predicted, and first by what the other recipe's trials tell.
        if order != FROM_NOTHING:
            assert gain.mean == gain.most == (5 if order == PREDICTED else 1)
    predicted = found["first", PREDICTED].after
    assert [predicted[count] for count in (1, 2, 4, 8)] == pytest.approx([1.0, 1.0, 0.9, 0.5])
    assert list(found["first", FROM_OTHERS].after.values()) == pytest.approx([0.5] * 5)


def test_a_recipe_learns_from_its_own_layers_as_they_are_tried() -> None:
    """Of some layers the best kernel is predicted well; what that says helps all others."""
    lines = all_of_them()
    known = {t.workloads[0] for t in lines if t.workloads[0].endswith(("56x56", "28x28"))}
    told = [
        t.model_copy(update={"predicted": 1.01})
        if t.workloads[0] in known and "4x16" in t.kernel
        else t
        for t in lines
        if t.recipe == "first"
    ]
    found = by_order(gains.gains(told))
    assert found["first", PREDICTED].mean == 3  # half of the layers take one, half five
    assert found["first", FROM_NOTHING].mean < 3


def test_a_recipe_s_own_layers_teach_it_nothing() -> None:
    """Nor do those of the same shape in another recipe."""
    found = by_order(gains.gains(made_up("first", SHAPES["first"][0])))
    assert {gain.mean for gain in found.values()} == {5}
    assert ("all", PREDICTED) not in found
    same = [t for recipe in SHAPES for t in made_up(recipe, SHAPES["first"][0])]
    assert by_order(gains.gains(same))["second", FROM_OTHERS].mean == 5


def test_larger_layers_weigh_more_and_the_default_is_a_kernel_too() -> None:
    lines = [t for t in all_of_them() if t.recipe == "first"]
    slower = [
        t.model_copy(update={"ratio": 2.0}) if t.workloads[0].startswith("u8s8 1x1") else t
        for t in lines
    ]
    gain = by_order(gains.gains(slower))["first", PREDICTED]
    # Three of four parts of the time take half; the rest stays with the default, at no trial.
    assert gain.best == pytest.approx(0.75 * 0.5 + 0.25)
    assert gain.mean == 2.5


def test_a_later_trial_replaces_an_earlier_one_and_other_loops_do_not_count() -> None:
    lines = made_up("first", SHAPES["first"][0])
    again = lines[-1].model_copy(update={"ratio": 0.9})
    other = lines[0].model_copy(update={"ratio": 0.1, "order": "blocks_inner"})
    gain = by_order(gains.gains([*lines, again, other]))["first", PREDICTED]
    assert gain.kernels == 5 and gain.best == pytest.approx(0.9)


def test_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [tmp_path / f"{recipe}.jsonl" for recipe in SHAPES]
    for recipe, file in zip(SHAPES, files, strict=True):
        ledger.append([t for t in all_of_them() if t.recipe == recipe], file)
    assert gains.main(list(map(str, files))) == 0
    text = capsys.readouterr().out
    assert [text.count(order) for order in gains.ORDERS] == [3, 3, 3]
    assert "first" in text and "0.500" in text


def test_ledgers_that_tell_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert gains.main([str(tmp_path / "none.jsonl")]) == 1
    assert "none.jsonl: No such file or directory" in capsys.readouterr().err
    file = tmp_path / "old.jsonl"
    ledger.append([line.model_copy(update={"predicted": None}) for line in all_of_them()], file)
    assert gains.main([str(file)]) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: no trial says what was predicted") and "doit tune" in error
