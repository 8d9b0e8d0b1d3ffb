"""Networks shaped as a detector and a transformer: what exporters write of them is read."""

from __future__ import annotations

from collections.abc import Callable

import onnx
import pytest

from recipes.models.exported_deit import deit
from recipes.models.exported_yolo import yolo
from recipes.models.graphs import Net
from stages.dialect.calls import shape_of
from stages.graph.bindings import outputs_of
from stages.importing.onnx.onnx_importer import import_graph
from stages.importing.onnx.onnx_reader import read
from stages.options import ImportOptions


@pytest.mark.parametrize(
    ("build", "shapes"),
    [(yolo, [(1, 4, 2100), (1, 80, 2100)]), (deit, [(1, 1000)])],
    ids=["yolo", "deit"],
)
def test_exported_networks_are_valid_and_read(
    build: Callable[[], tuple[Net, list[str]]], shapes: list[tuple[int, ...]]
) -> None:
    net, outputs = build()
    model = net.model(outputs)
    onnx.checker.check_model(model, full_check=True)
    read_in = import_graph(read(model.SerializeToString()), ImportOptions()).required()
    main = read_in.module["main"]
    assert [shape_of(output.ty) for output in outputs_of(main)] == shapes
