"""Bit-packing: a kernel for every linear layer and a layout for every edge, packing as a decision.

Canonicalizing leaves calls of composites on logical tensors, such as levels `uint2`
[1, 56, 56, 64] and weights [O, KH, KW, C]. Afterwards every composite reads and writes tensors as
they lie in memory: bit planes or bytes with halos, weights in the order their kernel reads them,
biases with every correction folded in. One pass does it for all models, `PackComposites`:

1. `Graph` (`call_graph.py`) says who gives each variable of `main` and who reads it.
2. `choose` (`kernel_choice.py`) picks a kernel for each linear layer (`linear_layers.py`): the one
   measured best, or predicted to be. It and the layout that it alone wants are a `LinearPlan`
   (`plans.py`). A depthwise convolution has a `DepthwisePlan` (`depthwise_plans.py`).
3. `solve` (`edges.py`) decides how each edge lies. An edge is a variable between the composite that
   gives it and those that read it; a `Layout` (`edge_layouts.py`) is its form, its halo, the
   padding of its channels and the order of its rows. Readers make layout requests. The solver joins
   those that one tensor can serve, stores levels less 128 where no kernel need take that off them
   then (`rebasing.py`), and says what each composite writes.
4. The pass makes each composite anew (`composite_packer.py`), in the order of `main`: a packed
   convolution with a bias from `bias_folding.py`; what follows sums, in as few bits as `sums.py`
   and `affine_thresholds.py` prove to be enough; results as they are wanted. A `PackedModelBuilder`
   (`packed_model_builder.py`) knows where each variable lies by then. What no composite writes as
   a layer wants it, such as a graph input or computed weights, is laid out in front of the layer
   (`layout_conversions.py`, `computed_matrices.py`).

What a composite computes has the channels there are; what fills up words and blocks is stored
behind them. Composites of levels (`Caller.is_of_levels`) write layouts alone. All others also write
a result as the user would see it, where something reads that.
"""

from __future__ import annotations

from functools import partial

from hw.profile import Hardware
from stages.bitpacking import kernel_choice
from stages.bitpacking.call_graph import Graph
from stages.bitpacking.pack_composites import PackComposites
from stages.dialect.calls import dtype_of, storage_dtype, tensor_types
from stages.graph.pass_table import Observer, Passes, PassRow, run_passes
from stages.kernels.workloads import LayerKernels
from stages.kinds import Model, Table
from stages.options import LegalizeOptions

__all__ = ["check", "kernels_by_layer", "passes", "run"]


def passes(
    options: LegalizeOptions, candidates: Table, choices: Table, hardware: Hardware
) -> Passes:
    """The one pass there is: kernels and layouts depend on each other all over the graph."""
    return (
        PassRow(
            partial(
                PackComposites,
                options=options,
                candidates=candidates,
                choices=choices,
                hardware=hardware,
            ),
            "chooses kernels and layouts, and makes each composite anew on packed tensors",
            "one layout may serve several kernels, so all are chosen before the first is written",
        ),
    )


def run(
    *,
    model: Model,
    options: LegalizeOptions,
    candidates: Table,
    choices: Table,
    hardware: Hardware,
    observe: Observer | None = None,
) -> Model:
    """Choose a kernel for every linear layer and a layout for every edge, and pack accordingly."""
    packed = run_passes(passes(options, candidates, choices, hardware), model, observe)
    check(packed)
    return packed


def kernels_by_layer(
    *, model: Model, options: LegalizeOptions, candidates: Table
) -> dict[str, LayerKernels]:
    """Layer → what there is to choose for it, where its data are bytes or floats."""
    return kernel_choice.kernels_by_layer(Graph(model), options, candidates)


def check(model: Model) -> None:
    """Raise AssertionError if a result of a composite of levels is no tensor that memory holds."""
    for variable, caller in Graph(model).callers.items():
        for dtype in map(dtype_of, tensor_types(variable.ty)) if caller.is_of_levels else ():
            is_stored = dtype == "bfloat16" or str(storage_dtype(dtype)) == dtype
            assert is_stored, variable.name
