"""How far each layer of a network that was quantized here is from the same layer in float32."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pipelines.builds import derived, work_count
from pipelines.builds.derived import LAYER_ERRORS
from pipelines.builds.plan import CALIBRATING, IMPORTING
from pipelines.builds.plan_execution import PlanExecution
from pipelines.builds.stage_calls import validated
from pipelines.store import keys

if TYPE_CHECKING:
    import numpy as np

    from stages.calibrating.layer_pairs import LayerPairs

    Array = np.ndarray[Any, Any]

LEAST_SAMPLES, MOST_SAMPLES = 2, 16
_PRODUCTS = 600_000_000
"""Multiply-accumulates of all samples together, about, so that the figures take seconds."""


def pair(execution: PlanExecution) -> LayerPairs | None:
    """Return the float model and the same with its quantizers; None if it was not quantized
    here."""
    from stages import calibrating
    from stages.calibrating.layer_pairs import LayerPairs

    plan = execution.plan
    if plan.calibration is None:
        return None
    step = plan.step(CALIBRATING)
    options = validated("stages.options", "CalibrateOptions", step.options["options"])
    model, calibrated = execution.load(plan.step(IMPORTING)), execution.load(step)
    return LayerPairs(*calibrating.in_float(model=model, calibrated=calibrated, options=options))


def by_layer(execution: PlanExecution) -> dict[str, Any] | None:
    """Return `samples` and `layers`, and `output` of the integers beside float32; None as above.

    A row has `layer`, `weight_bits` (None without weights), `is_exact` (nothing differs), `snr_db`
    (signal / noise, decibel; None where there is no noise or no signal) and `cosine`, over all
    samples. Every layer reads what the quantized network gives it, so errors of layers before are
    in it. Kept in the store.
    """
    plan = execution.plan
    if plan.calibration is None:
        return None
    macs = max(work_count.work(plan)["macs"], 1)
    wanted = max(LEAST_SAMPLES, min(MOST_SAMPLES, _PRODUCTS // macs))
    count = min(wanted, plan.calibration.section.samples)
    ingredients = {
        "inputs": derived.outputs(execution, (IMPORTING, CALIBRATING)),
        "calibration": plan.calibration.digest(),
        "samples": count,
        "code": {
            **keys.code_at_start("stages.calibrating"),
            **keys.code_ingredients("pipelines.evaluation.layer_errors", packages=("pipelines",)),
        },
    }
    return derived.table(execution, LAYER_ERRORS, ingredients, lambda: _found(execution, count))


def _found(execution: PlanExecution, count: int) -> dict[str, Any]:
    import numpy as np

    from stages.graph import interpret

    both = pair(execution)
    assert both is not None, "the caller asked"
    inputs = execution.calibration_samples(count).inputs
    count = min(count, *(len(values) for values in inputs.values()))
    integers = execution.load(execution.plan.step(CALIBRATING))
    sums: dict[str, Array] = {each.name: np.zeros(4) for each in both.layers}
    outputs = np.zeros(4)
    for at in range(count):
        sample = {name: values[at] for name, values in inputs.items()}
        wanted: dict[str, Any] = {}
        result = interpret.run(both.in_float, sample, observe=wanted.__setitem__)
        found = both.values(sample)
        for layer in both.layers:
            sums[layer.name] += _sums(wanted[layer.end], both.given(layer, found))
        for name, given in interpret.run(integers, sample).items():
            outputs += _sums(result[name], given)
    rows = [
        {"layer": each.name, "weight_bits": each.weight_bits, **_figures(sums[each.name])}
        for each in both.layers
    ]
    return {"samples": count, "layers": rows, "output": _figures(outputs)}


def _sums(wanted: Array, given: Array) -> Array:
    """Sums of squares: what is wanted, what is given, their difference, and their product."""
    import numpy as np

    a, b = (np.asarray(each, np.float64).reshape(-1) for each in (wanted, given))
    return np.array([(x * y).sum() for x, y in ((a, a), (b, b), (a - b, a - b), (a, b))])


def _figures(sums: Array) -> dict[str, float | bool | None]:
    import numpy as np

    signal, given, noise, product = (float(each) for each in sums)
    both = float(np.sqrt(signal * given))
    return {
        "is_exact": not noise,
        "snr_db": float(10 * np.log10(signal / noise)) if noise and signal else None,
        "cosine": product / both if both else float(signal == given),
    }
