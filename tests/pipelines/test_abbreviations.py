"""Names made short: never longer than wanted where that can be, and never two alike."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from pipelines.output.abbreviations import shortened

LAYERS = [f"model/stage{s}/block{b}/conv{c}/Conv2D" for s in (1, 2) for b in (1, 2) for c in (1, 2)]
JOINED = [
    f"MobilenetV1/Conv2d_{n}/Relu6;MobilenetV1/Conv2d_{n}/add_fold;MobilenetV1/Conv2d_0/weights"
    for n in range(12)
]
PARTS = st.lists(
    st.sampled_from(["a", "b", "conv1", "conv2", "/", ";", "…", "2", "é"]), max_size=30
)


def test_what_differs_stays() -> None:
    found = shortened(LAYERS, 20)
    assert list(found) == LAYERS
    assert found[LAYERS[0]] == "…1/block1/conv1…"
    assert shortened(LAYERS, 24)[LAYERS[-1]] == "…stage2/block2/conv2…"
    assert shortened(LAYERS, 28)[LAYERS[-1]] == "model/stage2/block2/conv2…"
    found = shortened(JOINED, 40)
    assert all(f"_{n}/" in found[name] for n, name in enumerate(JOINED))


def test_names_that_fit_stay_and_one_alone_loses_its_middle() -> None:
    assert shortened(["conv1", "a" * 10], 10) == {"conv1": "conv1", "a" * 10: "a" * 10}
    assert shortened(["first/" + "x" * 40 + "/last"], 13) == {
        "first/" + "x" * 40 + "/last": "first/…x/last"
    }


def test_a_text_that_another_name_has_is_not_used() -> None:
    long = "abc" + "x" * 20 + "def"
    assert set(shortened([long, "abc…def"], 7).values()) == {"abc…def", "abcxx…2"}


@given(st.lists(PARTS.map("".join), max_size=25), st.integers(0, 40))
@example(["aXb", "aXXb", "aXXXb", "a…b"], 3)
@example(["", "…", "……"], 0)
def test_different_names_stay_different(names: list[str], width: int) -> None:
    found = shortened(names, width)
    assert set(found) == set(names)
    assert len(set(found.values())) == len(found)
    assert all(found[name] == name for name in names if len(name) <= width)
    if width >= 8:  # wide enough to number any of them
        assert all(len(text) <= width for text in found.values())
