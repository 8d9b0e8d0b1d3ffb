"""Choose a kernel for every linear layer: the one measured best, or predicted to be."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Any

from stages.bitpacking.call_graph import Graph
from stages.bitpacking.edge_layouts import images, layout_of, nhwc
from stages.bitpacking.linear_layers import Layer, layers_of, linear_name
from stages.bitpacking.plans import LinearPlan
from stages.bitpacking.window import Window
from stages.dialect import names
from stages.dialect.calls import attributes, dtype_of, operand_levels
from stages.dialect.dtypes import parse
from stages.dialect.padding import Padding
from stages.dialect.zero_point import AT_ZERO
from stages.errors import StageError
from stages.graph.bindings import variables_in
from stages.graph.composites import is_batched, is_float_product
from stages.kernels.channel_groups import groups_of
from stages.kernels.geometry import PHASES, POLYPHASE_GAIN, Geometry
from stages.kernels.kernel_candidates import KernelCandidate, from_table
from stages.kernels.packing_choices import packed_as, packing_text
from stages.kernels.problems import FLOAT_PROBLEMS, Problem
from stages.kernels.selection import byte_algorithms, byte_candidates, weight_limit_of
from stages.kernels.workloads import LayerKernels, Workload, pick, products_problem
from stages.kinds import Table
from stages.nodes import Call, Var
from stages.options import LegalizeOptions

WINOGRADS = (
    "it transforms windows of 3x3 pixels, of at least 8 channels, that move by two, or by one if "
    "their sums have 26 bits at most"
)
WINOGRADS_OF_FLOATS = (
    "it transforms windows of 3x3 pixels, of at least 8 channels, that move by one or two"
)
_HINT = "leave algorithm out, or write mac8"


def choose(
    graph: Graph, options: LegalizeOptions, candidates: Table, choices: Table
) -> dict[Var, LinearPlan]:
    """Variable of `main` → the linear layer that gives it, and its kernel."""
    layers = layers_of(graph, options)
    polyphase = polyphase_data(graph, layers, candidates)
    return {
        variable: _planned(layer, kernels_of(layer, candidates, polyphase), choices)
        for variable, layer in layers.items()
    }


def kernels_by_layer(
    graph: Graph, options: LegalizeOptions, candidates: Table
) -> dict[str, LayerKernels]:
    """Layer → what there is to choose for it, as its data lie.

    Layers that legalizing has given to kernels of stored bits are not among them: for these it has
    chosen.
    """
    layers = layers_of(graph, options)
    polyphase = polyphase_data(graph, layers, candidates)
    return {
        one.name: kernels_of(one, candidates, polyphase)
        for one in layers.values()
        if str(one.call.op.name) not in names.BIT_LINEAR
    }


def polyphase_data(graph: Graph, layers: Mapping[Var, Layer], candidates: Table) -> set[Var]:
    """The data of linear layers whose rows are to lie in phases.

    Nothing reads them but layers whose windows move by two pixels, and that are predicted to take
    less time so, all together.
    """
    readers: dict[Var, list[Layer | None]] = {}
    for binding in graph.bindings:
        layer, read = layers.get(binding.var), variables_in(binding.value)
        for variable in read:
            is_data = layer is not None and layer.data.same_as(variable)
            only = is_data and read.count(variable) == 1
            readers.setdefault(variable, []).append(layer if only else None)
    return {variable for variable, of in readers.items() if _gains(of, candidates)}


def _gains(readers: Sequence[Layer | None], candidates: Table) -> bool:
    """Whether all that read something take less time if it lies in phases."""
    mine = other = 0.0
    for layer in readers:
        if layer is None or not _is_strided(layer.call):
            return False
        layer_kernels = kernels_of(layer, candidates)
        if (geometry := layer_kernels.workload.geometry.as_polyphase) is None:
            return False
        mine += _least(layer_kernels)
        other += _least(_laid(layer_kernels, geometry))
    return other < POLYPHASE_GAIN * mine


def _is_strided(call: Call) -> bool:
    """Whether a product of bytes moves by as many pixels as there may be phases."""
    strides = tuple(attributes(call).get("strides", ()))
    is_bytes = linear_name(call) == "conv2d" and not is_float_product(call)
    return is_bytes and strides == (PHASES, PHASES)


def kernels_of(layer: Layer, candidates: Table, polyphase: Collection[Var] = ()) -> LayerKernels:
    """The kernels there are for a layer whose algorithm is chosen, with some data in phases."""
    call, weight, attrs = layer.call, layer.weights, attributes(layer.call)
    height, width, outputs = nhwc(call.ty)
    batch, count = images(call.ty), attrs.get("groups", 1)
    channels, strides = weight.shape[-1] * count, tuple(attrs.get("strides", (1, 1)))
    geometry = Geometry(
        weight.shape[1:3],
        channels,
        width,
        batch * height,
        strides,
        channel_unit=1 if is_batched(call) or is_float_product(call) else layer.channel_unit,
        images=batch,
        in_blocks=layer.is_of_levels or is_float_product(call),
        groups=groups_of(count, (channels, outputs)),
        has_matrices=is_batched(call),
        is_unpadded=is_batched(call) and not is_float_product(call),
    )
    problem, fitting = _candidates_of(layer, geometry, candidates)
    layer_kernels = LayerKernels((Workload(problem, geometry, outputs),), tuple(fitting))
    if is_float_product(call) or str(call.op.name) in names.BIT_LINEAR:
        return layer_kernels
    if is_batched(call):
        return min((layer_kernels, *_padded(layer_kernels)), key=_least)
    if layer.data in polyphase:
        return _laid(layer_kernels, replace(geometry, phases=PHASES))
    return _cheapest(layer_kernels) if layer.lies_freely else layer_kernels


def _candidates_of(
    layer: Layer, geometry: Geometry, candidates: Table
) -> tuple[str, Sequence[KernelCandidate]]:
    """What a layer's problem is called, and the kernels for it that the recipe leaves."""
    data = dtype_of(layer.call.args[0].ty)
    if is_float_product(layer.call):
        problem = FLOAT_PROBLEMS[data].name
        return problem, _of_algorithm(layer, geometry, from_table(candidates[problem]))
    bits, weights = parse(data).bits, layer.weights
    if algorithm := linear_name(layer.call).rpartition("_")[0]:
        problem = Problem.of(*operand_levels(layer.call)).name
        of_algorithm = [o for o in from_table(candidates[problem]) if o.algorithm == algorithm]
        return problem, _of_packing(layer, geometry, of_algorithm)
    algorithms = byte_algorithms(weights, geometry.strides, layer.algorithm)
    of_bytes = byte_candidates(candidates, bits, weights, algorithms)
    problem = products_problem(bits, weight_limit_of(weights))
    return problem, _of_algorithm(layer, geometry, of_bytes)


def _padded(layer_kernels: LayerKernels) -> list[LayerKernels]:
    """The same with pixels padded to the steps of kernels that are longer than words.

    Where weights are computed, pixels of bytes lie as they are given: what fills up their last word
    is the next pixel's, and multiplied with weights of 0.
    """
    geometry = replace(layer_kernels.workload.geometry, is_unpadded=False)
    longer = [o.signature for o in layer_kernels.candidates if o.signature.step > 1]
    units = sorted({signature.step * signature.channels_per_word for signature in longer})
    return [_laid(layer_kernels, replace(geometry, channel_unit=unit)) for unit in units]


def _of_algorithm(
    layer: Layer, geometry: Geometry, candidates: Sequence[KernelCandidate]
) -> Sequence[KernelCandidate]:
    """Those candidates of products that the recipe's algorithm leaves; StageError if none fits."""
    if attributes(layer.call).get("is_direct"):
        return [o for o in candidates if not o.signature.is_transformed]
    if layer.algorithm is None:
        return candidates
    is_wanted = layer.algorithm == "winograd"
    found = [o for o in candidates if o.signature.is_transformed == is_wanted]
    if is_wanted and not any(geometry.takes(o.signature) for o in found):
        what = WINOGRADS_OF_FLOATS if is_float_product(layer.call) else WINOGRADS
        raise StageError(f"cannot choose winograd: {what}", layer=layer.name, hint=_HINT)
    return found


def _of_packing(
    layer: Layer, geometry: Geometry, candidates: Sequence[KernelCandidate]
) -> Sequence[KernelCandidate]:
    """Those candidates of popcounts that the recipe's packing leaves; StageError if none fits."""
    found = packed_as(candidates, layer.packing)
    if not any(geometry.takes(one.signature) for one in found):
        fitting = {packing_text(o.signature) for o in candidates if geometry.takes(o.signature)}
        raise StageError(
            f"cannot pack bits so: there are kernels for {'; '.join(sorted(fitting))}",
            layer=layer.name,
            hint="change packing, or leave it out",
        )
    return found


def _cheapest(layer_kernels: LayerKernels) -> LayerKernels:
    """The same with rows of its data packed, or its pixels close together, if that is predicted to
    be cheaper."""
    mine = layer_kernels.workload.geometry
    others = [
        _laid(layer_kernels, g) for g in (mine.as_row_packed, mine.as_unpadded) if g is not None
    ]
    return min((layer_kernels, *others), key=_least)


def _laid(layer_kernels: LayerKernels, geometry: Geometry) -> LayerKernels:
    """The same with data that lie otherwise."""
    return replace(layer_kernels, workloads=(replace(layer_kernels.workload, geometry=geometry),))


def _least(layer_kernels: LayerKernels) -> float:
    """Predicted cycles of the cheapest kernel; infinitely many if there is none for such data."""
    work = layer_kernels.workload
    return next(map(work.cycles, layer_kernels.ranked()), inf)


def _planned(layer: Layer, layer_kernels: LayerKernels, choices: Table) -> LinearPlan:
    """What is picked for a layer, on data that lie as this kernel alone wants them."""
    picked, geometry = (
        pick(layer_kernels.candidates, layer_kernels.workload, choices),
        layer_kernels.workload.geometry,
    )
    kernel, attrs = picked.fitted(geometry), attributes(layer.call)
    outputs = layer_kernels.workload.outputs
    window = Window(
        kernel=layer.weights.shape[1:3],
        strides=tuple(attrs.get("strides", (1, 1))),
        padding=Padding.of(attrs),
        size=nhwc(layer.data.ty)[:2],
        output=nhwc(layer.call.ty)[:2],
        transform=picked.transform(geometry, outputs) if kernel.is_transformed else None,
    )
    lying: dict[str, Any] = {"packed_rows": geometry.packed_rows, "phases": geometry.phases}
    if kernel.form == "bytes":
        lying["channel_unit"] = 1 if geometry.is_unpadded else geometry.channel_unit
    elif kernel.is_float:
        lying["channel_unit"] = kernel.channels_per_word
    zero_point = attrs["data_zero_point"] if kernel.form == "bytes" else AT_ZERO
    halo = window.halo(geometry.packed_rows, geometry.phases, zero_point)
    layout = layout_of(layer.data, kernel.form, kernel.stored, halo=halo, **lying)
    return LinearPlan(layer, kernel, window, geometry.groups, layout)
