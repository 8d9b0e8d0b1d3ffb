"""Calling a stage: its options as the models it expects, and code that changed meanwhile."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from pipelines.builds.plan import Step
from pipelines.errors import UserError
from pipelines.store import keys
from pipelines.store.items import Memo


def call(step: Step, arguments: dict[str, Any], memo: Memo) -> Any:
    """Return what a step's stage makes of its inputs."""
    module, _, function = step.stage.entry.partition(":")
    run = getattr(importlib.import_module(module), function)
    for argument, model in step.stage.options.items():
        arguments[argument] = validated("stages.options", model, step.options[argument])
    if step.hardware is not None:
        arguments["hardware"] = validated("hw.profile", "Hardware", step.hardware)
    if step.stage.items:
        arguments["memo"] = memo
    return run(**arguments)


def check_unedited(step: Step, code: Mapping[str, str]) -> None:
    """Refuse to keep what may have been made by code other than its key says."""
    now = keys.code_ingredients(step.stage.entry.partition(":")[0])
    edited = sorted(name for name in now.keys() | code.keys() if now.get(name) != code.get(name))
    if edited:
        raise UserError(
            f"{step.name}: {', '.join(edited)} changed while it ran, so its result is not kept; "
            "build again"
        )


def validated(module: str, model: str, data: object) -> Any:
    """Return plain data as the model a stage expects; JSON, since strict models want tuples."""
    return getattr(importlib.import_module(module), model).model_validate_json(keys.canonical(data))
