"""Batches are computed image by image where that is the same, and refused or kept elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tvm import relax

from stages import quantizing
from stages.dialect.calls import shape_of
from stages.errors import StageError
from stages.graph import interpret
from stages.graph.bindings import bindings_of
from stages.graph.builder import ModelBuilder
from stages.graph.collecting import images_of, is_collect
from stages.importing import run as imported
from stages.importing.zoo import build
from stages.kinds import Model
from stages.layer_options import TensorQuantization
from stages.numerics.float_softmax import softmax
from stages.options import ImportOptions, ZooName, ZooOptions
from stages.quantizing.split_batch import SplitBatch, SplitWholeBatch

op = relax.op
Build = Callable[[ModelBuilder, Any], Any]


def network(shape: tuple[int, ...], build: Build) -> Model:
    builder = ModelBuilder()
    x = builder.input("x", shape, "float32")
    return builder.model([builder.emit(build(builder, x), "y")], ["y"], attrs={"numerics": "onnx"})


def constant(builder: ModelBuilder, *shape: int) -> Any:
    return builder.tensor("c", np.random.default_rng(1).normal(size=shape).astype(np.float32))


def emitted(builder: ModelBuilder, call: Any) -> Any:
    return builder.emit(call, "inner")


def whole_numbers(shape: tuple[int, ...]) -> dict[str, Any]:
    return {"x": np.random.default_rng(2).integers(-9, 9, shape).astype(np.float32)}


APART: dict[str, tuple[tuple[int, ...], Build]] = {
    "reshape": ((3, 4, 5), lambda _, x: op.reshape(x, (3, 20))),
    "broadcast": ((3, 1, 5), lambda _, x: op.broadcast_to(x, (3, 4, 5))),
    "slice": ((3, 4, 5), lambda _, x: op.strided_slice(x, [-1], [1], [4])),
    "mean": ((3, 4, 5), lambda _, x: op.mean(x, [1, 2], True)),
    "turn": ((3, 4, 5), lambda _, x: op.permute_dims(x, [0, 2, 1])),
    "join": ((3, 4, 5), lambda _, x: op.concat([x, x], -1)),
    "softmax": ((3, 4), lambda _, x: softmax(x, beta=1.0)),
    "products": ((3, 4, 4), lambda _, x: op.matmul(x, x)),
    "weights": ((3, 4), lambda b, x: op.matmul(x, constant(b, 4, 7))),
    "as many channels": ((3, 3), lambda b, x: op.add(x, constant(b, 3))),
    "of several": ((3, 4, 5), lambda b, x: op.add(x, emitted(b, op.max(x, [1], True)))),
}
MEETING: dict[str, tuple[tuple[int, ...], Build]] = {
    "mean": ((3, 4), lambda _, x: op.mean(x, [0], True)),
    "mean of all": ((3, 4), lambda _, x: op.mean(x, None, True)),
    "flip": ((3, 4), lambda _, x: op.flip(x, 0)),
    "turn": ((3, 3), lambda _, x: op.permute_dims(x)),
    "join": ((3, 4), lambda _, x: op.concat([x, x], 0)),
    "slice": ((3, 4), lambda _, x: op.strided_slice(x, [0], [0], [2])),
    "choice": ((3, 4), lambda b, x: op.take(x, b.tensor("i", np.array([2, 0, 1])), 0)),
    "flat": ((3, 4), lambda _, x: op.reshape(x, (1, 12))),
    "fewer": ((4, 6), lambda _, x: op.reshape(x, (2, 12))),
    "softmax of one axis": (
        (3, 1),
        lambda b, x: softmax(emitted(b, op.reshape(x, (3,))), beta=1.0),
    ),
    "other rank": ((3, 3), lambda b, x: op.add(x, emitted(b, op.max(x, [1])))),
    "Gram matrix": ((3, 4), lambda b, x: op.matmul(x, emitted(b, op.permute_dims(x)))),
    "a constant for each": ((3, 4), lambda b, x: op.add(x, constant(b, 3, 4))),
    "constant": ((3, 4), lambda b, _: op.add(constant(b, 3, 4), constant(b, 3, 4))),
}


@pytest.mark.parametrize("name", APART)
def test_images_apart_give_what_they_give_together(name: str) -> None:
    shape, function = APART[name]
    model = network(shape, function)
    alone = SplitWholeBatch(model).run()
    assert images_of(alone) == 3
    assert shape_of(alone.module["main"].params[0].ty) == (1, *shape[1:])
    seen: dict[str, Any] = {}
    given = whole_numbers(shape)
    ours = interpret.run(alone, given, observe=seen.__setitem__)["y"]
    np.testing.assert_array_equal(ours, interpret.run(model, given)["y"])
    np.testing.assert_array_equal(ours, seen["y"])


@pytest.mark.parametrize("name", MEETING)
def test_images_that_may_meet_are_not_taken_apart(name: str) -> None:
    shape, function = MEETING[name]
    model = network(shape, function)
    with pytest.raises(StageError, match=f"the {shape[0]} samples of a batch meet here"):
        SplitWholeBatch(model).run()
    assert SplitBatch(model).run() is model


def test_a_vector_is_no_batch() -> None:
    model = network((3,), lambda _, x: softmax(x, beta=1.0))
    assert SplitBatch(model).run() is SplitWholeBatch(model).run() is model


def test_a_network_of_weights_alone_stays_a_batch() -> None:
    model = network((3, 40), lambda b, x: op.matmul(x, constant(b, 40, 40)))
    assert SplitBatch(model).run() is model
    assert images_of(SplitWholeBatch(model).run()) == 3


def weighty(builder: ModelBuilder, x: Any, channels: int = 64) -> list[Any]:
    """Sums of products of x [N, 32, C], and products with more weights than these."""
    first = builder.emit(op.matmul(x, constant(builder, channels, channels)), "first")
    sums = builder.emit(op.sum(first, [1]), "sums")
    last = builder.tensor("w", np.arange(channels * 100).reshape(-1, 100).astype(np.float32) % 7)
    return [first, sums, builder.emit(op.matmul(sums, last), "last")]


def of_weights(channels: int, build: Callable[[ModelBuilder, list[Any]], list[Any]]) -> Model:
    builder = ModelBuilder()
    x = builder.input("x", (3, 32, channels), "float32")
    results = build(builder, weighty(builder, x, channels))
    return builder.model(results, [f"y{at}" for at in range(len(results))])


def collected(model: Model) -> list[str]:
    bindings = bindings_of(model.module["main"])
    return [str(b.value.args[0].name) for b in bindings if is_collect(b.value)]


BEHIND: dict[str, Callable[[ModelBuilder, list[Any]], list[Any]]] = {
    "nothing": lambda _, values: values[2:],
    "images meet": lambda b, values: [b.emit(op.mean(values[2], [0], True), "mean")],
    "the sums are the user's": lambda _, values: values[1:],
}


@pytest.mark.parametrize("name", BEHIND)
def test_last_layers_of_weights_compute_all_images_at_once(name: str) -> None:
    model = of_weights(64, BEHIND[name])
    alone = SplitBatch(model).run()
    assert (images_of(alone), collected(alone)) == (3, ["sums"])
    given, seen = whole_numbers((3, 32, 64)), dict[str, Any]()
    ours = interpret.run(alone, given, observe=seen.__setitem__)
    for name, value in interpret.run(model, given).items():
        np.testing.assert_array_equal(ours[name], value)
    assert seen["sums"].shape == seen["sums.collected"].shape == (3, 64)


@pytest.mark.parametrize(
    ("channels", "build"),
    [
        (63, BEHIND["nothing"]),  # an image's sums would begin anywhere
        (64, lambda _, values: [values[0], values[2]]),  # so much would be collected for the user
    ],
)
def test_what_cannot_be_collected_is_computed_image_by_image(channels: int, build: Any) -> None:
    model = of_weights(channels, build)
    alone = SplitBatch(model).run()
    assert (images_of(alone), collected(alone)) == (3, [])
    given = whole_numbers((3, 32, channels))
    for name, value in interpret.run(model, given).items():
        np.testing.assert_array_equal(interpret.run(alone, given)[name], value)


def test_single_images_and_inputs_of_other_extents_stay_as_they_are() -> None:
    model = network((1, 4), lambda _, x: op.nn.relu(x))
    assert SplitWholeBatch(model).run() is model
    builder = ModelBuilder()
    x, y = (builder.input(n, s, "float32") for n, s in (("x", (3, 4)), ("y", (1, 4))))
    model = builder.model([builder.emit(op.add(x, y), "z")], ["z"])
    assert SplitWholeBatch(model).run() is model


def zoo(name: ZooName, form: Any, batch: int) -> Model:
    options = ZooOptions(name=name, format=form, image_size=16, batch=batch)
    if form == "qonnx":
        weights = TensorQuantization(bits=2, encoding="signed")
        activations = TensorQuantization(bits=2, encoding="unipolar")
        options = options.model_copy(update={"activations": activations, "weights": weights})
    return imported(source=build(options=options), options=ImportOptions())


@pytest.mark.parametrize("form", ["qdq", "qonnx", "float"])
def test_a_batch_of_a_zoo_network_is_the_same_network_for_every_image(form: str) -> None:
    several, single = (quantizing.run(model=zoo("residual_block", form, n)) for n in (3, 1))
    assert (images_of(several), images_of(single)) == (3, 1)
    given = np.random.default_rng(0).integers(0, 256, (3, 3, 16, 16)).astype(np.float32) / 256
    together = interpret.run(several, {"data": given})["out"]
    alone = [interpret.run(single, {"data": image[None]})["out"] for image in given]
    np.testing.assert_array_equal(together, np.concatenate(alone))
