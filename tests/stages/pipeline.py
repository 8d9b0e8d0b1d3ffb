"""Run a source network through the model stages and compare every stage with the source."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import yaml

from hw.profile import Hardware
from stages import bitpacking, canonicalizing, legalizing, quantizing, synthesizing
from stages.dialect.calls import shape_of
from stages.graph import interpret
from stages.kernels.kernel_candidates import KernelCandidate, from_table, to_table
from stages.kernels.problems import Problem
from stages.kernels.signature import KernelSignature
from stages.kinds import Model, Table
from stages.layer_options import Algorithm, LayerAlgorithm
from stages.options import LegalizeOptions
from stages.synthesizing import enumeration
from stages.synthesizing.compiled_counts import CompiledCounts
from stages.synthesizing.enumeration import candidates_for
from tests.kept import kept

Array = np.ndarray[Any, Any]
ROOT = Path(__file__).resolve().parents[2]
BOARDS = ROOT / "hw" / "boards"


@cache
def board(name: str) -> Hardware:
    """A hardware profile of hw/boards."""
    facts = yaml.safe_load((BOARDS / f"{name}.yaml").read_text(encoding="utf-8"))
    return Hardware.model_validate_json(json.dumps({"name": name, **facts}))


def candidates_of(quantized: Model, hardware: Hardware) -> Table:
    """The candidates for a quantized model, priced as it is predicted.

    Kernels are not compiled to be counted once more, which changes what some cost, but not what
    any computes: those that a test uses are compiled for it.
    """

    def memo(_: str, ingredients: Mapping[str, object], build: Callable[[], bytes]) -> bytes:
        return kept("predicted candidates", ingredients, lambda: _predicted(build))

    return synthesizing.enumerate_kernels(model=quantized, hardware=hardware, memo=memo)


def kept_candidates(problem: Problem, hardware: Hardware) -> list[KernelCandidate]:
    """The candidates for a problem, counted as LLVM compiles it."""

    def build() -> bytes:
        return json.dumps(to_table(candidates_for(problem, hardware))).encode()

    named = {"problem": problem.name, "hardware": hardware.ingredients()}
    return from_table(json.loads(kept("candidates", named, build)))


def _predicted(build: Callable[[], bytes]) -> bytes:
    """Candidates as LLVM would leave them if it copied and spilled nothing."""

    def uncounted(signatures: Iterable[KernelSignature], *_: object) -> object:
        return dict.fromkeys(signatures, CompiledCounts(1, 0, 0, 0, 0))

    with patch.object(enumeration, "_compiled", uncounted):
        return build()


def algorithm(name: Algorithm, match: str = "*") -> LegalizeOptions:
    """The same algorithm for every layer that a pattern matches."""
    return LegalizeOptions(layers=(LayerAlgorithm(match=match, algorithm=name),))


def stages(
    source: Model, hardware: str | Hardware = "rpi3", options: LegalizeOptions | None = None
) -> dict[str, Model]:
    """The model after each stage up to bit-packing."""
    profile = board(hardware) if isinstance(hardware, str) else hardware
    quantized = quantizing.run(model=source)
    candidates = candidates_of(quantized, profile)
    options = options or LegalizeOptions()
    legalized = legalizing.run(
        model=quantized, options=options, candidates=candidates, choices={}, hardware=profile
    )
    canonical = canonicalizing.run(model=legalized)
    packed = bitpacking.run(
        model=canonical, options=options, candidates=candidates, choices={}, hardware=profile
    )
    return {
        "quantizing": quantized,
        "legalizing": legalized,
        "canonicalizing": canonical,
        "bitpacking": packed,
    }


def random_inputs(model: Model, seed: int = 0, spread: float = 2.0) -> dict[str, Array]:
    """A float32 value for every graph input."""
    rng = np.random.default_rng(seed)
    main = model.module["main"]
    return {
        str(p.name): (rng.normal(size=shape_of(p.ty)) * spread).astype(np.float32)
        for p in main.params[: int(main.attrs["num_input"])]
    }


def assert_same(expected: dict[str, Array], found: dict[str, Array], where: str) -> None:
    """Fail unless all outputs are equal, value by value."""
    assert expected.keys() == found.keys(), where
    for name, value in expected.items():
        assert found[name].shape == value.shape, f"{where}: {name} has {found[name].shape}"
        different = np.flatnonzero(found[name].ravel() != value.ravel())
        first = int(different[0]) if different.size else 0
        assert not different.size, (
            f"{where}: {name} differs in {different.size} of {value.size} values; at {first} it "
            f"is {found[name].ravel()[first]} instead of {value.ravel()[first]}"
        )


def assert_stages_agree(
    source: Model,
    hardware: str | Hardware = "rpi3",
    options: LegalizeOptions | None = None,
    *,
    inputs: dict[str, Array] | None = None,
) -> dict[str, Model]:
    """Fail unless every stage computes what the source computes; returns the stages' models."""
    given = random_inputs(source) if inputs is None else inputs
    expected = interpret.run(source, given)
    models = stages(source, hardware, options)
    for name, model in models.items():
        assert_same(expected, interpret.run(model, given), name)
    return models
