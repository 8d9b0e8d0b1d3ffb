"""Choose a kernel for every product of a module: the one measured best, or predicted to be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any

import numpy as np
from tvm.ir import Call

from stages.bitpacking.edges import LINEAR, narrow_inputs, nhwc, pictures
from stages.bitpacking.window import Chosen, Window
from stages.errors import StageError
from stages.kinds import Table
from stages.options import Algorithm, LegalizeOptions, Packing
from stages.qnn.builder import bindings_of, composite_of, variables_in
from stages.qnn.composites import calls_in, has_own, is_batched, is_float_product
from stages.qnn.geometry import PHASED, PHASES, Geometry
from stages.qnn.groups import groups_of
from stages.qnn.measured import Subject, Workload, pick, products_problem
from stages.qnn.methods import BYTE_BITS, WORD_BYTES
from stages.qnn.offers import (
    FLOAT_PROBLEMS,
    Offer,
    Problem,
    from_table,
    on_bytes,
    products_for,
    ranked,
    weight_limit_of,
)
from stages.qnn.packings import packed_as, packing_text
from stages.qnn.registry import attributes, dtype_of, shape_of
from stages.qnn.signature import BLOCK
from stages.qnn.terms import encoding_of

Tensors = dict[str, np.ndarray[Any, Any]]
WINOGRADS = (
    "it transforms windows of 3x3 pixels, of at least 8 channels, that move by two, or by one if "
    "their sums have 26 bits at most"
)
WINOGRADS_OF_FLOATS = (
    "it transforms windows of 3x3 pixels, of at least 8 channels, that move by one or two"
)
_HINT = "leave algorithm out, or write mac8"
DRAWING = {"relax.permute_dims", "relax.qnn.quantize"}
"""Operators that a pass over an input picture may consist of."""


@dataclass(frozen=True)
class Work:
    """A product in `main`."""

    name: str
    data: Any
    """What it multiplies, in `main`."""
    call: Any
    """Its call, in its composite."""
    weight: np.ndarray[Any, Any]
    """Levels [O, ..., K]."""
    unit: int = BLOCK
    """Bytes of its data are padded to a multiple of so many channels."""
    wish: Algorithm | None = None
    """How the recipe says that it multiplies."""
    packing: Packing | None = None
    """How the recipe says that its bits are packed."""
    in_blocks: bool = True
    """Whether its results are finished by whole blocks of channels."""


def choose(
    module: Any, tensors: Tensors, options: LegalizeOptions, offers: Table, choices: Table
) -> dict[Any, Chosen]:
    """Call of a composite in `main` → what is chosen for its convolution or matrix product."""
    works = works_in(module, tensors, options)
    phased = in_phases(module, works, offers)
    return {v: kernel_of(work, offers, choices, phased) for v, work in works.items()}


def subjects_on_bytes(
    module: Any, tensors: Tensors, options: LegalizeOptions, offers: Table
) -> dict[str, Subject]:
    """Layer → what there is to choose for it, of those that multiply bytes, as their data lie."""
    works = works_in(module, tensors, options)
    phased = in_phases(module, works, offers)
    on_bytes = {v: w for v, w in works.items() if linear_name(w.call) in ("conv2d", "dense")}
    return {str(v.name): subject_of(work, offers, phased) for v, work in on_bytes.items()}


def works_in(module: Any, tensors: Tensors, options: LegalizeOptions) -> dict[Any, Work]:
    """Call of a composite in `main` → its convolution or matrix product, if a kernel is chosen."""
    works: dict[Any, Work] = {}
    drawn = _drawn(module)
    for binding in bindings_of(module["main"]):
        function = composite_of(module, binding.value)
        if function is None:
            continue
        actual = dict(zip(function.params, binding.value.args, strict=True))
        for inner in bindings_of(function):
            if isinstance(inner.value, Call) and is_chosen(inner.value):
                data, weight = (actual[argument] for argument in inner.value.args)
                unit = WORD_BYTES if data in drawn else BLOCK
                name = str(binding.var.name)
                wishes = options.algorithm_of(name), options.packing_of(name)
                weights = tensors[weight.name]
                works[binding.var] = Work(name, data, inner.value, weights, unit, *wishes)
    return works


def is_chosen(call: Any) -> bool:
    """Whether a kernel is chosen for an operator: a product, but of each channel on its own."""
    return bool(linear_name(call)) and not has_own(call)


def in_phases(module: Any, works: Mapping[Any, Work], offers: Table) -> set[Any]:
    """The data of products in `main` whose rows are to lie in phases.

    Nothing reads them but products whose windows move by two pixels, and that are predicted to take
    less time so, all together.
    """
    readers: dict[Any, list[Work | None]] = {}
    for binding in bindings_of(module["main"]):
        work, read = works.get(binding.var), variables_in(binding.value)
        for variable in read:
            is_data = work is not None and work.data.same_as(variable) and read.count(variable) == 1
            readers.setdefault(variable, []).append(work if is_data else None)
    return {variable for variable, of in readers.items() if _gains(of, offers)}


def _gains(readers: Sequence[Work | None], offers: Table) -> bool:
    """Whether all that read something take less time if it lies in phases."""
    mine = other = 0.0
    for work in readers:
        if work is None or not _is_strided(work.call):
            return False
        subject = subject_of(work, offers)
        if (geometry := subject.workload.geometry.as_phased) is None:
            return False
        mine += _least(subject)
        other += _least(_laid(subject, geometry))
    return other < PHASED * mine


def _is_strided(call: Any) -> bool:
    """Whether a product of bytes moves by as many pixels as there may be phases."""
    strides = tuple(attributes(call).get("strides", ()))
    is_bytes = linear_name(call) == "conv2d" and not is_float_product(call)
    return is_bytes and strides == (PHASES, PHASES)


def _drawn(module: Any) -> set[Any]:
    """Pictures of few channels, from a float input to one product, that a pass of their own makes:
    their rows can be stacked."""
    bindings = bindings_of(module["main"])
    readers = Counter(v for b in bindings for v in variables_in(b.value))
    narrow, found = narrow_inputs(module), set()
    for binding in bindings:
        function = composite_of(module, binding.value)
        if binding.var in narrow and readers[binding.var] == 1 and function is not None:
            source = function.params[0].ty
            is_picture = dtype_of(source) == "float32" and len(shape_of(source)) == 4
            if is_picture and {str(call.op.name) for call in calls_in(function)} <= DRAWING:
                found.add(binding.var)
    return found


def linear_name(call: Any) -> str:
    """The name of a convolution or matrix product in the dialect, else nothing."""
    name = str(call.op.name).removeprefix("relax.qnn.")
    return name if name in LINEAR else ""


def subject_of(work: Work, offers: Table, phased: Collection[Any] = ()) -> Subject:
    """The kernels there are for a product whose algorithm is chosen, with some data in phases."""
    call, weight = work.call, work.weight
    data, stored = call.args
    if is_batched(call):
        return _of_matrices(work, offers)
    kernel = (1, 1) if weight.ndim == 2 else weight.shape[1:3]
    height, width, outputs = nhwc(call.ty)
    batch = pictures(call.ty)
    height *= batch
    attrs = attributes(call)
    strides = tuple(attrs.get("strides", (1, 1)))
    count = attrs.get("groups", 1)
    channels = weight.shape[-1] * count
    groups = groups_of(count, (channels, outputs))
    geometry = Geometry(kernel, channels, width, height, strides, pictures=batch, groups=groups)
    if is_float_product(call):
        problem, geometry = FLOAT_PROBLEMS[dtype_of(data.ty)].name, replace(geometry, unit=1)
        offered = _wished(work, geometry, from_table(offers[problem]))
        return Subject((Workload(problem, geometry, outputs),), tuple(offered))
    bits = int(dtype_of(data.ty).lstrip("uint"))
    geometry = replace(geometry, unit=work.unit, in_blocks=work.in_blocks)
    algorithm, dtype = linear_name(call).rpartition("_")[0], dtype_of(stored.ty)
    if algorithm:
        encoding = encoding_of(dtype, attrs["weight_zero_point_x2"])
        problem = Problem(bits, int(dtype.lstrip("uint")), encoding).name
        offered = [o for o in from_table(offers[problem]) if o.algorithm == algorithm]
        offered = _packed(work, geometry, offered)
    else:
        limit = weight_limit_of(weight)
        problem = products_problem(bits, limit)
        offered = products_for(offers, bits, weight, on_bytes(weight, strides, work.wish))
        offered = _wished(work, geometry, offered)
    subject = Subject((Workload(problem, geometry, outputs),), tuple(offered))
    if work.data in phased:
        return _laid(subject, replace(geometry, phases=PHASES))
    return subject if algorithm else _cheapest(subject)


def _of_matrices(work: Work, offers: Table) -> Subject:
    """The kernels there are for a product whose weights are computed.

    Pixels of bytes lie as they are given: what fills up their last word is the next pixel's, and
    multiplied with weights of 0. Kernels whose steps are longer than words get them padded.
    """
    rows, width, outputs = nhwc(work.call.ty)
    count, channels = pictures(work.call.ty), work.weight.shape[-1]
    geometry = Geometry(
        (1, 1), channels, width, count * rows, pictures=count, unit=1, has_matrices=True
    )
    if is_float_product(work.call):
        problem = FLOAT_PROBLEMS[dtype_of(work.call.args[0].ty)].name
        offered = _wished(work, geometry, from_table(offers[problem]))
        return Subject((Workload(problem, geometry, outputs),), tuple(offered))
    problem = products_problem(BYTE_BITS, weight_limit_of(work.weight))
    geometry = replace(geometry, in_blocks=work.in_blocks, is_unpadded=True)
    offered = _wished(work, geometry, products_for(offers, BYTE_BITS, work.weight, {"mac8"}))
    subject = Subject((Workload(problem, geometry, outputs),), tuple(offered))
    longer = [o.signature for o in offered if o.signature.step > 1]
    units = sorted({signature.step * signature.channels_per_word for signature in longer})
    padded = (replace(geometry, is_unpadded=False, unit=unit) for unit in units)
    return min((subject, *(_laid(subject, each) for each in padded)), key=_least)


def _wished(work: Work, geometry: Geometry, offered: Sequence[Offer]) -> Sequence[Offer]:
    """Those offers of products that the recipe's wish leaves; StageError if none fits."""
    if attributes(work.call).get("is_direct"):
        return [o for o in offered if not o.signature.is_transformed]
    if work.wish is None:
        return offered
    is_wanted = work.wish == "winograd"
    found = [o for o in offered if o.signature.is_transformed == is_wanted]
    if is_wanted and not any(geometry.takes(o.signature) for o in found):
        what = WINOGRADS_OF_FLOATS if is_float_product(work.call) else WINOGRADS
        raise StageError(f"cannot choose winograd: {what}", layer=work.name, hint=_HINT)
    return found


def _packed(work: Work, geometry: Geometry, offered: Sequence[Offer]) -> Sequence[Offer]:
    """Those offers of popcounts that the recipe's packing leaves; StageError if none fits."""
    found = packed_as(offered, work.packing)
    if not any(geometry.takes(offer.signature) for offer in found):
        fitting = {packing_text(o.signature) for o in offered if geometry.takes(o.signature)}
        raise StageError(
            f"cannot pack bits so: there are kernels for {'; '.join(sorted(fitting))}",
            layer=work.name,
            hint="change packing, or leave it out",
        )
    return found


def _cheapest(subject: Subject) -> Subject:
    """The same with rows of its data stacked, or its pixels close together, if that is predicted to
    be cheaper."""
    mine = subject.workload.geometry
    others = [_laid(subject, g) for g in (mine.as_stacked, mine.as_unpadded) if g is not None]
    return min((subject, *others), key=_least)


def _laid(subject: Subject, geometry: Geometry) -> Subject:
    """The same with data that lie otherwise."""
    return replace(subject, workloads=(replace(subject.workload, geometry=geometry),))


def _least(subject: Subject) -> float:
    """Predicted cycles of the cheapest kernel; infinitely many if there is none for such data."""
    work = subject.workload
    return next(map(work.cycles, ranked(subject.offers, work.geometry, work.outputs)), inf)


def kernel_of(work: Work, offers: Table, choices: Table, phased: Collection[Any] = ()) -> Chosen:
    """What is picked for a product, among the kernels that `subject_of` gives."""
    subject, call, weight = subject_of(work, offers, phased), work.call, work.weight
    picked, geometry = pick(subject.offers, subject.workload, choices), subject.workload.geometry
    attrs = attributes(call)
    window = Window(
        kernel=(1, 1) if weight.ndim == 2 else weight.shape[1:3],
        strides=tuple(attrs.get("strides", (1, 1))),
        padding=tuple(attrs.get("padding", (0, 0, 0, 0))),
        size=nhwc(call.args[0].ty)[:2],
        output=nhwc(call.ty)[:2],
        transform=picked.transform(geometry, subject.workload.outputs)
        if picked.signature.is_transformed
        else None,
    )
    return Chosen(
        picked.fitted(geometry),
        window,
        stacked=geometry.stacked,
        phases=geometry.phases,
        unit=1 if geometry.is_unpadded else geometry.unit,
        groups=geometry.groups,
    )
