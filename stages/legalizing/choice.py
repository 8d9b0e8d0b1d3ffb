"""Which algorithm a layer gets: what its encodings allow, then what the core does fastest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from stages.dialect import integer, names
from stages.dialect.calls import attributes, dtype_of, is_op, shape_of
from stages.dialect.levels import Levels
from stages.errors import StageError
from stages.graph.layer_forms import bits_obstacle, obstacle_to_bits
from stages.kernels.channel_groups import groups_of
from stages.kernels.geometry import POLYPHASE_GAIN, Geometry
from stages.kernels.kernel_candidates import LINE, KernelAlgorithm, KernelCandidate, from_table
from stages.kernels.lut import ENTRIES, GROUP
from stages.kernels.packing_choices import packed_as
from stages.kernels.problems import Problem
from stages.kernels.selection import byte_algorithms, byte_candidates, storable, weight_limit_of
from stages.kernels.workloads import LayerKernels, Workload, pick, products_problem
from stages.kinds import Array, Table
from stages.layer_options import Algorithm, Packing
from stages.nodes import VarBinding

ON_BITS: dict[KernelAlgorithm | None, str] = {
    "bitserial": "be bit-serial",
    "lookup": "look products up",
}
"""Algorithms on stored bits, and what a layer does with them."""
ON_BYTES = ("mac8", "winograd")
"""Algorithms on levels as bytes, between which bit-packing chooses."""
LUT_LINE_CYCLES = 16
"""Cycles that making and writing 64 bytes of LUTs takes.

Measured on a Cascade Lake: ResNet-18 A1W1 takes 1.01 to 1.05 times as long if LUTs are made for
its downsampling layers alone.
"""
BUILDERS = {
    ("bitserial", True): integer.bitserial_conv2d,
    ("bitserial", False): integer.bitserial_dense,
    ("lookup", True): integer.lookup_conv2d,
    ("lookup", False): integer.lookup_dense,
}
"""Operators on stored bits, by algorithm and whether they are convolutions."""


@dataclass(frozen=True)
class Layer:
    """A convolution or matrix product: name, dtypes, attributes, stored weights, output's size."""

    name: str
    data_dtype: str
    weight_dtype: str
    attrs: dict[str, Any]
    weight: Array
    output: tuple[int, int]
    own_obstacle: str | None = None
    """What keeps it from stored bits beside the encodings of its operands."""

    @property
    def obstacle(self) -> str | None:
        """Why it cannot be computed on stored bits (bit-serial, or by look-ups), or None."""
        encodings = bits_obstacle(*self.levels, self.attrs.get("groups", 1))
        return encodings or self.own_obstacle

    @property
    def levels(self) -> tuple[Levels, Levels]:
        """What the input and the stored weights may hold."""
        stored = Levels.of_type(self.weight_dtype, self.attrs["weight_zero_point"])
        return Levels.of_type(self.data_dtype), stored

    @property
    def problem(self) -> Problem:
        """The product of levels that the layer computes."""
        return Problem.of(*self.levels)

    @property
    def geometry(self) -> Geometry:
        """The layer's window, strides and size."""
        _, *window, channels = (self.weight.shape[0], 1, 1, *self.weight.shape[1:])[-4:]
        count = self.attrs.get("groups", 1)
        strides = tuple(self.attrs.get("strides", (1, 1)))
        height, width = self.output
        channels *= count
        groups = groups_of(count, (channels, self.weight.shape[0]))
        return Geometry((window[0], window[1]), channels, width, height, strides, groups=groups)

    @property
    def lut_lines(self) -> float:
        """How many times 64 bytes the LUTs of its input take."""
        geometry, (down, right) = self.geometry, self.geometry.strides
        pixels = geometry.output_rows * geometry.output_width * down * right
        return pixels * geometry.channels / GROUP * ENTRIES / LINE

    def workload(self, problem: str) -> Workload:
        """What it is called where kernels for a problem are chosen."""
        return Workload(problem, self.geometry, self.weight.shape[0])

    def storable_candidates(self, candidates: Table) -> list[KernelCandidate]:
        """The kernels there are for its product."""
        return storable(from_table(candidates[self.problem.name]), self.numerators)

    @property
    def numerators(self) -> Array:
        """The weights as products take them."""
        values: Array = self.attrs["weight_zero_point"].numerators(self.weight)
        return values

    @property
    def weight_limit(self) -> int:
        """The largest magnitude of a weight (`weight_limit_of`)."""
        return weight_limit_of(self.numerators)


def layer_of(binding: VarBinding, weight: Array) -> Layer:
    """What the choice depends on, of the binding of a convolution or matrix product."""
    call = binding.value
    height, width = shape_of(call.ty)[1:3] if is_op(call, names.QNN_CONV2D) else (1, 1)
    data, stored = (dtype_of(argument.ty) for argument in call.args)
    name, obstacle = str(binding.var.name), obstacle_to_bits(call, weight)
    return Layer(name, data, stored, attributes(call), weight, (height, width), obstacle)


def choose(
    layer: Layer, wanted: KernelAlgorithm | None, candidates: Table, choices: Table
) -> KernelAlgorithm:
    """The recipe's override where there is one, else the algorithm of the kernel picked."""
    if wanted in ON_BITS and layer.obstacle:
        raise algorithm_error(layer.name, wanted, layer.obstacle)
    if wanted in ON_BYTES or layer.obstacle:
        return "mac8"
    storable_ones = layer.storable_candidates(candidates)
    if wanted is None:
        return _algorithm_of(pick(storable_ones, layer.workload(layer.problem.name), choices))
    if not any(one.algorithm == wanted for one in storable_ones):
        raise StageError(
            f"cannot {ON_BITS[wanted]}: the instruction set has no kernel for it",
            layer=layer.name,
            hint="use algorithm: bitserial, or leave it out",
        )
    return wanted


def algorithm_error(
    layer: str, wanted: KernelAlgorithm | None, obstacle: str, *, is_named: bool = False
) -> StageError:
    """Why a layer cannot have the algorithm that the recipe wants, which `is_named` or told."""
    what = f"choose {wanted}" if is_named else ON_BITS[wanted]
    return StageError(f"cannot {what}: {obstacle}", layer=layer, hint="use algorithm: mac8")


def shared_algorithm(readers: Sequence[Layer], candidates: Table) -> KernelAlgorithm | None:
    """The algorithm for all readers of the same levels; None where each is better off with its own.

    LUTs are much to write beside planes or bytes, so one reader alone must gain by them what they
    take. Bytes that all read, and move over alike, may lie in phases. Kernels that were measured
    are no exception: neither who writes LUTs was timed nor what else would do with bytes.
    """
    if any(layer.obstacle for layer in readers):
        return None
    workloads = [layer.workload(layer.problem.name) for layer in readers]
    of_layers = [layer.storable_candidates(candidates) for layer in readers]
    costs = list(map(_costs, workloads, of_layers))
    own = [min(cost, key=lambda algorithm: cost[algorithm]) for cost in costs]
    if len(set(own)) == 1:
        return None
    alone = sum(min(cost.values()) for cost in costs)
    if "lookup" in own:
        alone += readers[0].lut_lines * _lut_line_cycles(readers[0], of_layers[0])
    common = set.intersection(*(set(cost) for cost in costs))
    totals = {algorithm: sum(cost[algorithm] for cost in costs) for algorithm in sorted(common)}
    if (
        "mac8" in totals
        and (polyphase := _polyphase_cycles(workloads, of_layers)) < POLYPHASE_GAIN * totals["mac8"]
    ):
        totals["mac8"] = polyphase
    best = min(totals, key=lambda algorithm: totals[algorithm])
    return best if totals[best] < alone else None


def _lut_line_cycles(layer: Layer, candidates: Sequence[KernelCandidate]) -> float:
    """Cycles for 64 bytes of LUTs; those that the L2 cache does not hold go to memory, and
    come from there."""
    is_far = any(layer.lut_lines * LINE > candidate.l2_bytes for candidate in candidates)
    return LUT_LINE_CYCLES + is_far * 2 * max(
        (candidate.memory_line_cycles for candidate in candidates), default=0.0
    )


def _polyphase_cycles(
    workloads: Sequence[Workload], of_layers: Sequence[Sequence[KernelCandidate]]
) -> float:
    """Cycles of all layers on bytes that lie in phases; infinitely many where these cannot."""
    total = 0.0
    for work, candidates in zip(workloads, of_layers, strict=True):
        if (geometry := work.geometry.as_polyphase) is None:
            return inf
        total += _costs(replace(work, geometry=geometry), candidates).get("mac8", inf)
    return total


def _costs(work: Workload, candidates: Sequence[KernelCandidate]) -> dict[KernelAlgorithm, float]:
    """Cycles of a layer's cheapest kernel of each algorithm, those on bytes together."""
    costs = dict[KernelAlgorithm, float]()
    for candidate in candidates:
        if work.geometry.takes(candidate.signature):
            cost, algorithm = work.cycles(candidate), _algorithm_of(candidate)
            costs[algorithm] = min(cost, costs.get(algorithm, cost))
    return costs


def _algorithm_of(candidate: KernelCandidate) -> KernelAlgorithm:
    """What legalizing calls a candidate's algorithm: on bytes it is one."""
    return "mac8" if candidate.algorithm in ON_BYTES else candidate.algorithm


def layer_kernels(
    layer: Layer, wanted: Algorithm | None, packing: Packing | None, candidates: Table
) -> LayerKernels:
    """The kernels among which there is a choice for a layer, that of the algorithm included."""
    products = layer.workload(products_problem(layer.levels[0].bits, layer.weight_limit))
    if wanted in ON_BYTES or layer.obstacle:
        algorithms = byte_algorithms(layer.numerators, products.geometry.strides, wanted)
        of_bytes = byte_candidates(candidates, layer.levels[0].bits, layer.numerators, algorithms)
        return LayerKernels((products,), tuple(of_bytes))
    storable_ones = layer.storable_candidates(candidates)
    allowed = [one for one in storable_ones if wanted in (None, one.algorithm)]
    allowed = packed_as(allowed, packing)
    return LayerKernels((layer.workload(layer.problem.name), products), tuple(allowed))
