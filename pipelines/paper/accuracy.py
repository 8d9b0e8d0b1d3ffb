"""What the sources say of accuracy: CGO's Figure 8, QNN's Tables I and II.

Data are those at hand: scikit-learn's digits for the trained networks that come with bitkiln, and
whatever labelled data the recipes of the work folder name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import get_args

from pipelines.paper.cgo import cycles
from pipelines.paper.figure import CGO, QNN, Figure, Part, Results, Table, mega
from pipelines.paper.runs import Found, Run, run

PUBLISHED: Sequence[tuple[str, str, float, float]] = (
    ("MXNet", "resnet-18", 69.86, 69.76),
    ("MXNet", "resnet-50", 76.16, 76.13),
    ("MXNet", "resnet-50-v1b", 76.56, 76.66),
    ("MXNet", "resnet-101", 76.97, 77.13),
    ("MXNet", "resnet-152", 75.75, 75.99),
    ("MXNet", "inception-v3", 77.28, 77.84),
    ("MXNet", "inception-bn", 71.79, 71.96),
    ("MXNet", "mobilenet-v1", 71.13, 71.27),
    ("MXNet", "mobilenet-v2", 70.35, 70.14),
    ("TFLite", "inception-v1", 69.6, 70.1),
    ("TFLite", "inception-v2", 73.3, 73.5),
    ("TFLite", "inception-v3", 77.3, 77.5),
    ("TFLite", "inception-v4", 79.6, 79.5),
    ("TFLite", "mobilenet-v1", 70.1, 70.0),
    ("TFLite", "mobilenet-v2", 70.8, 70.9),
    ("PyTorch", "resnet-18", 69.63, 69.49),
    ("PyTorch", "resnet-50", 75.84, 75.88),
    ("PyTorch", "inception-v3", 77.28, 77.65),
    ("PyTorch", "googlenet", 69.37, 69.59),
    ("PyTorch", "mobilenet-v2", 70.61, 70.43),
)
"""QNN, Table II, top 1 in percent: framework, network, QNN-TVM, the framework itself."""
