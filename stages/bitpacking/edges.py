"""The solver: how every edge between composites lies in memory, for the whole graph at once.

An edge is a variable of `main` between the composite that gives it and those that read it. Every
layer comes with the layout that its kernel alone wants (`plans.py`). The solver decides three
things, in this order:

1. What layers read (`_joined`). Layouts of one variable that differ in halo or planes alone become
   one, with the widest halo and the planes of all: a halo around an image costs nothing to make
   where its values are computed, and a pass over memory anywhere else.
2. Which images are rebased: stored as the signed bytes that kernels multiply (`rebasing.py`).
3. What composites write (`_requests`): the layouts that are wanted of a result, and the result as
   the user sees it where something reads it so. What adds a result to its own reads it inside a
   layout that is there anyway. Composites of levels know no other way, so that theirs have bytes
   among their layouts wherever anything but a kernel reads them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tvm import relax

from hw.profile import Hardware
from stages.bitpacking.call_graph import Caller, Graph
from stages.bitpacking.depthwise_plans import depthwise_of
from stages.bitpacking.edge_layouts import FORMS, Layout, layout_of
from stages.bitpacking.plans import LinearPlan, Plan, Plans
from stages.bitpacking.rebasing import can_be_rebased, rebased
from stages.dialect import names
from stages.dialect.calls import attributes, dtype_of, is_op, shape_of
from stages.dialect.padding import Halo
from stages.errors import StageError
from stages.graph.bindings import variables_in
from stages.graph.composites import MOST_TAPS, calls_in, max_pool_of, pad_of
from stages.kernels.operand_storage import Stored
from stages.nodes import Var

BITS = Stored(1, (0b10,))
"""Single bits, set for level 1, and no sums of them."""


@dataclass
class LayoutRequests:
    """How the readers of a result want it."""

    can_pad: bool = True
    """Whether the composite that gives it can write it padded for a reader that pads it."""
    layouts: list[Layout] = field(default_factory=list)
    """Layouts in which layers want the result as their data."""
    pads: list[tuple[Any, Any]] = field(default_factory=list)
    """Paddings that read it: their variables in `main`, and the calls inside their composites."""
    is_added: bool = False
    """Whether something adds it, position by position, inside a layout if there is one."""
    is_read: bool = False
    """Whether something reads it as the user sees it."""

    def note(self, variable: Var, reader: Caller, plan: Plan | None) -> None:
        """Note that a composite, whose layer has a plan if it has one, reads the result."""
        layout, pad = _wanted(variable, plan), _padding(reader) if self.can_pad else None
        if layout is not None:
            if layout not in self.layouts:
                self.layouts.append(layout)
            if reader.reads(variable) == 1:
                return
        if pad is not None:
            self.pads.append((reader.variable, pad))
        elif _is_added(variable, reader, plan, layout):
            self.is_added = True
        else:
            self.is_read = True

    @property
    def inside(self) -> Layout | None:
        """The layout inside of which it can be read, bytes if there are any."""
        images = [layout for layout in self.layouts if layout.is_image]
        return min(images, key=lambda layout: layout.form != "bytes", default=None)

    @property
    def is_stored_as_user(self) -> bool:
        """Whether some reader finds it in no layout."""
        is_found = self.inside is not None if self.is_added else bool(self.layouts or self.pads)
        return self.is_read or not is_found


@dataclass(frozen=True)
class Edges:
    """The solver's answer: plans of layers, and how each result is written."""

    plans: Plans
    requests: Mapping[Var, LayoutRequests]
    """Variable of `main` → how its composite writes it; as the user sees it if it is not here."""

    def of(self, variable: Var) -> LayoutRequests:
        """How a variable of `main` is written."""
        return self.requests.get(variable, LayoutRequests(is_read=True))


def solve(graph: Graph, chosen: Mapping[Var, LinearPlan], hardware: Hardware) -> Edges:
    """The layouts of all edges of a canonicalized model, whose linear layers have kernels."""
    plans: Plans = {**chosen, **depthwise_of(graph, hardware)}
    plans = _joined(plans)
    candidates = can_be_rebased(plans)
    tried = _requests(graph, rebased(plans, candidates))
    kept = {data for data in candidates if data in tried and not tried[data].is_stored_as_user}
    plans = rebased(plans, kept)
    requests = _requests(graph, plans)
    _pool_planes(graph, requests)
    return Edges(plans, requests)


# -- what layers read -------------------------------------------------------------------------


def _joined(plans: Plans) -> Plans:
    """The same, where layers that read the same in layouts which can be one share it."""
    shared: dict[tuple[Any, Layout], Layout] = {}
    sharing = {v: (p, p.layout) for v, p in plans.items() if p.layout is not None and _shares(p)}
    for plan, layout in sharing.values():
        key = plan.layer.data, layout.bare
        shared[key] = shared[key].joined(layout) if key in shared else layout
    found = dict(plans)
    for variable, (plan, layout) in sharing.items():
        joined = shared[plan.layer.data, layout.bare]
        _check_axis(plan, joined.stored)
        found[variable] = replace(plan, layout=joined)
    return found


def _shares(plan: Plan) -> bool:
    """Whether a layer can read its data in a layout that is made for others too.

    Floats lie as they are where no halo is wanted, and a tile of all pixels is chosen for the halo
    that its own window has.
    """
    if plan.layer.is_of_levels or not isinstance(plan, LinearPlan):
        return True
    return not plan.kernel.is_float and not plan.kernel.covers_layer


def _check_axis(plan: Plan, joined: Stored | None) -> None:
    """StageError if planes do not lie where the recipe wants them: the readers of a tensor find
    them in one place."""
    if not isinstance(plan, LinearPlan) or joined is None or joined.inner:
        return
    packing = plan.layer.packing
    if packing is not None and packing.bit_axis == "inner" and plan.kernel.inner:
        raise StageError(
            "planes cannot lie inside pixels: another layer that reads the same activations has "
            "them elsewhere",
            layer=plan.layer.name,
            hint="give these layers the same packing",
        )


# -- what composites write --------------------------------------------------------------------


def _requests(graph: Graph, plans: Plans) -> dict[Var, LayoutRequests]:
    """Result → how it is read, for all of levels, and else for every layer or maximum pool of bytes
    with one result that is an image."""
    found = {
        variable: LayoutRequests(can_pad=not caller.is_of_levels)
        for variable, caller in graph.producers.items()
        if isinstance(variable.ty, relax.TensorType)
        and (caller.is_of_levels or _writes_layouts(caller, plans))
    }
    for binding in graph.bindings:
        reader, plan = graph.callers.get(binding.var), plans.get(binding.var)
        for variable in found.keys() & variables_in(binding.value):
            if reader is None:
                found[variable].is_read = True
            else:
                found[variable].note(variable, reader, plan)
    for variable, requests in found.items():
        of_levels, wanted = graph.producers[variable].is_of_levels, requests.layouts
        if of_levels and requests.is_added and all(one.form != "bytes" for one in wanted):
            wanted.append(layout_of(variable, "bytes"))
        wanted.sort(key=lambda one: FORMS.index(one.form))
        is_pool = not of_levels and variable not in plans
        if is_pool and (requests.is_stored_as_user or requests.pads or len(wanted) > 1):
            found[variable] = LayoutRequests(is_read=True)  # a pool writes one result
    return found


def _writes_layouts(caller: Caller, plans: Plans) -> bool:
    """Whether a composite that is none of levels can write its result as a layout."""
    is_image = len(shape_of(caller.variable.ty)) == 4
    return is_image and (caller.variable in plans or max_pool_of(caller.function) is not None)


def _wanted(variable: Var, plan: Plan | None) -> Layout | None:
    """The layout in which a result is to be written for a layer that has it as its data: of levels
    always, else if all that it reads of an image is the image with a halo around it, or
    rebased."""
    if plan is None or plan.layout is None or not plan.layer.data.same_as(variable):
        return None
    if plan.layer.is_of_levels:
        return plan.layout
    layout, given = plan.layout, plan.layer.actual.values()
    is_bytes = layout.form == "bytes" and dtype_of(variable.ty) == "uint8"
    is_whole = layout.padded_channels == layout.channels and layout.packed_rows == 1
    is_own = any(layout.halo.sides) or layout.phases > 1 or layout.is_rebased
    is_only = sum(variable.same_as(argument) for argument in given) == 1
    return layout if is_bytes and is_whole and is_own and is_only else None


def _is_added(variable: Var, reader: Caller, plan: Plan | None, layout: Layout | None) -> bool:
    """Whether what a composite reads of a result, but as a layer's data in a layout, is added to
    what it computes, position by position, or the like."""
    if reader.is_of_levels:
        return "float" not in dtype_of(variable.ty)
    if not isinstance(plan, LinearPlan) or dtype_of(variable.ty) != "uint8":
        return False
    shape, is_data = shape_of(variable.ty), plan.layer.data.same_as(variable)
    is_alike = shape == shape_of(plan.layer.inner.var.ty) and shape[0] == 1
    return is_alike and (layout is not None or not is_data)


def _padding(reader: Caller) -> Any:
    """The padding of height and width that a TE composite is, if it is nothing else."""
    pad = pad_of(reader.function)
    if pad is None or len(calls_in(reader.function)) > 1:
        return None
    width = [int(count) for count in pad.attrs.pad_width]
    return pad if len(width) == 8 and not any((*width[:2], *width[6:])) else None


def _pool_planes(graph: Graph, requests: dict[Var, LayoutRequests]) -> None:
    """Have maximum pools of single bits read planes: the largest of many bits is their OR.

    Their producers pack what they compare anyway, and 32 channels are pooled at once. The halo
    holds level 0, which never wins.
    """
    # The last one first: what a pool writes, another pool may read.
    for variable, caller in reversed(list(graph.callers.items())):
        pool = _pool_of_levels(caller)
        if pool is None or [one.stored for one in requests[variable].layouts] != [BITS]:
            continue
        (source,) = caller.actual.values()
        if graph.readings[source] == 1:
            halo = Halo(attributes(pool)["padding"])
            requests[source].layouts = [layout_of(source, "planes", BITS, halo=halo)]


def _pool_of_levels(caller: Caller) -> Any:
    """The operator of a composite of levels that is a small maximum pool and nothing else."""
    calls = calls_in(caller.function)
    if not caller.is_of_levels or len(calls) != 1 or not is_op(calls[0], names.QNN_MAX_POOL2D):
        return None
    kernel = attributes(calls[0])["kernel"]
    return calls[0] if kernel[0] * kernel[1] <= MOST_TAPS else None
