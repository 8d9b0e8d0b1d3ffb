"""Fewer transposes and reshapes, and the same values."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax

from stages.dialect.calls import shape_of
from stages.graph import interpret
from stages.graph.bindings import needed_bindings
from stages.graph.builder import ModelBuilder
from stages.graph.simplify_graph import simplify
from stages.kinds import Model

RNG = np.random.default_rng(3)
IMAGE = (1, 3, 1, 5)
KINDS = ("turn", "thin", "thicken", "split", "any", "relu", "add")


def operators(model: Model) -> list[str]:
    found = [binding.value for binding in needed_bindings(model.module["main"])]
    return [str(value.op.name).removeprefix("relax.") for value in found if hasattr(value, "op")]


def assert_same(before: Model, shape: tuple[int, ...]) -> list[str]:
    """Check that simplifying changes no value; the operators that outputs still need."""
    after = simplify(before)
    inputs = {"x": RNG.normal(size=shape).astype(np.float32)}
    expected, found = interpret.run(before, inputs), interpret.run(after, inputs)
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value)
    return operators(after)


def test_nothing_moves_between_layers_of_one_dimension() -> None:
    """Images of one row, channels last, and lines of channels first between them."""
    builder = ModelBuilder()
    value = builder.input("x", (1, 1, 5, 3), "float32")
    for layer in range(3):
        turned = builder.emit(relax.op.permute_dims(value, [0, 3, 1, 2]), f"nchw{layer}")
        line = builder.emit(relax.op.reshape(turned, (1, 3, 5)), f"line{layer}")
        bias = builder.tensor(f"bias{layer}", RNG.normal(size=(3, 1)).astype(np.float32))
        moved = builder.emit(relax.op.add(line, bias), f"add{layer}")
        image = builder.emit(relax.op.reshape(moved, IMAGE), f"image{layer}")
        value = builder.emit(relax.op.permute_dims(image, [0, 2, 3, 1]), f"nhwc{layer}")
        value = builder.emit(relax.op.abs(value), f"layer{layer}")
    left = assert_same(builder.model([value], ["y"]), (1, 1, 5, 3))
    assert "permute_dims" not in left and left.count("add") == left.count("abs") == 3


def test_blocks_of_channels_become_pixels_in_one_move() -> None:
    """Of channels that lie last, without a pass that turns them first."""
    builder = ModelBuilder()
    x = builder.input("x", (1, 5, 3, 12), "float32")
    turned = builder.emit(relax.op.permute_dims(x, [0, 3, 1, 2]), "nchw")
    blocks = builder.emit(relax.op.reshape(turned, (1, 3, 2, 2, 5, 3)), "blocks")
    moved = builder.emit(relax.op.permute_dims(blocks, [0, 1, 4, 2, 5, 3]), "moved")
    shaped = builder.emit(relax.op.reshape(moved, (1, 3, 10, 6)), "shaped")
    result = builder.emit(relax.op.abs(shaped), "abs")
    left = assert_same(builder.model([result], ["y"]), (1, 5, 3, 12))
    assert left == ["reshape", "permute_dims", "reshape", "abs"]


def test_a_reshape_of_a_reshape_is_one() -> None:
    builder = ModelBuilder()
    value = builder.input("x", (2, 6), "float32")
    for index, shape in enumerate([(3, 4), (12,), (2, 6)]):
        value = builder.emit(relax.op.reshape(value, shape), f"r{index}")
    result = builder.emit(relax.op.abs(value), "abs")
    assert assert_same(builder.model([result], ["y"]), (2, 6)) == ["abs"]


@settings(max_examples=60)
@given(st.data())
def test_any_row_of_moves(data: st.DataObject) -> None:
    builder = ModelBuilder()
    shape = tuple(data.draw(st.lists(st.sampled_from([1, 1, 2, 3, 6]), min_size=2, max_size=4)))
    value = builder.input("x", shape, "float32")
    for index in range(data.draw(st.integers(1, 6))):
        extents = list(shape_of(value.ty))
        rank = len(extents)
        kind = data.draw(
            st.sampled_from(["turn", "thin", "thicken", "split", "any", "relu", "add"])
        )
        if kind == "turn":
            call = relax.op.permute_dims(value, data.draw(st.permutations(range(rank))))
        elif kind == "thin":
            kept = [n for n in extents if n != 1 or data.draw(st.booleans())]
            call = relax.op.reshape(value, tuple(kept or [1]))
        elif kind == "thicken":
            extents.insert(data.draw(st.integers(0, rank)), 1)
            call = relax.op.reshape(value, tuple(extents))
        elif kind == "split":
            place = data.draw(st.integers(0, rank - 1))
            part = data.draw(st.sampled_from([n for n in (1, 2, 3) if extents[place] % n == 0]))
            cut = [extents[place] // part, part]
            call = relax.op.reshape(value, (*extents[:place], *cut, *extents[place + 1 :]))
        elif kind == "any":
            call = relax.op.reshape(value, (int(np.prod(extents)),))
        elif kind == "relu":
            call = relax.op.nn.relu(value)
        else:
            last = builder.tensor(f"c{index}", RNG.normal(size=extents[-1:]).astype(np.float32))
            call = relax.op.add(value, last)
        value = builder.emit(call, f"v{index}")
    result = builder.emit(relax.op.abs(value), "abs")
    assert_same(builder.model([result], ["y"]), shape)
