"""Run a source network through the model stages and compare every stage with the source."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import numpy as np
import yaml

from hw.profile import Hardware
from pipelines import keys
from stages import bitpacking, canonicalizing, legalizing, quantizing, synthesizing
from stages.kinds import Model, Table
from stages.options import Algorithm, LayerAlgorithm, LegalizeOptions
from stages.qnn import interpret
from stages.qnn.offers import Offer, Problem, from_table, to_table
from stages.qnn.registry import shape_of
from stages.synthesizing.offering import offers_for

Array = np.ndarray[Any, Any]
ROOT = Path(__file__).resolve().parents[2]
BOARDS = ROOT / "hw" / "boards"
KEPT = ROOT / ".pytest_cache" / "offers"


@cache
def board(name: str) -> Hardware:
    """A hardware profile of hw/boards."""
    facts = yaml.safe_load((BOARDS / f"{name}.yaml").read_text(encoding="utf-8"))
    return Hardware.model_validate_json(json.dumps({"name": name, **facts}))


_items: dict[str, bytes] = {}


def kept(kind: str, ingredients: Mapping[str, object], build: Callable[[], bytes]) -> bytes:
    """An item store that keeps what was built for later tests."""
    key = json.dumps([kind, ingredients], sort_keys=True)
    if key not in _items:
        _items[key] = build()
    return _items[key]


def offers_of(quantized: Model, hardware: Hardware) -> Table:
    """What the synthesis engine offers for a quantized model."""

    def memo(_: str, ingredients: Mapping[str, object], build: Callable[[], bytes]) -> bytes:
        return _kept_offers(str(ingredients["problem"]), hardware, build)

    return synthesizing.offer(model=quantized, hardware=hardware, memo=memo)


def offered(problem: Problem, hardware: Hardware) -> list[Offer]:
    """What the synthesis engine offers for a problem."""

    def build() -> bytes:
        return json.dumps(to_table(offers_for(problem, hardware))).encode()

    return from_table(json.loads(_kept_offers(problem.name, hardware, build)))


def _kept_offers(problem: str, hardware: Hardware, build: Callable[[], bytes]) -> bytes:
    """Offers, in a file until the engine's code changes: to compile and compare takes minutes."""
    code = keys.code_at_start("stages.synthesizing")
    everything = {"code": code, "problem": problem, "hardware": hardware.ingredients()}
    path = KEPT / keys.digest(keys.canonical(everything))

    def outlasting() -> bytes:
        if not path.is_file():
            path.parent.mkdir(parents=True, exist_ok=True)
            with NamedTemporaryFile(dir=path.parent, delete=False) as file:
                file.write(build())
            Path(file.name).replace(path)
        return path.read_bytes()

    return kept("offers", {"file": path.name}, outlasting)


def algorithm(name: Algorithm, match: str = "*") -> LegalizeOptions:
    """The same algorithm for every layer that a pattern matches."""
    return LegalizeOptions(layers=(LayerAlgorithm(match=match, algorithm=name),))


def stages(
    source: Model, hardware: str | Hardware = "rpi3", options: LegalizeOptions | None = None
) -> dict[str, Model]:
    """The model after each stage up to bit-packing."""
    profile = board(hardware) if isinstance(hardware, str) else hardware
    quantized = quantizing.run(model=source)
    offers = offers_of(quantized, profile)
    options = options or LegalizeOptions()
    legalized = legalizing.run(model=quantized, options=options, offers=offers, choices={})
    canonical = canonicalizing.run(model=legalized)
    packed = bitpacking.run(
        model=canonical, options=options, offers=offers, choices={}, hardware=profile
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
