"""A zoo network at several sizes: whether its time grows as its multiply-accumulates do."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from pipelines.errors import UserError, did_you_mean
from pipelines.recipe import recipe_slices
from pipelines.recipe.resolved import Resolved
from stages.options import ZooOptions

AS_IT_IS = "as it is"
AXES = {
    "picture": ("pictures twice as high and wide", "image_size"),
    "channels": ("twice the channels", "width"),
}
"""What can be doubled: in words, and the option of a zoo network."""


def grown(resolved: Resolved, stated: str) -> dict[str, ZooOptions]:
    """Return what is larger, in words → the network; `stated` names axes, or `all`.

    UserError for a model file, a batch, an axis that there is not, and a network that is as large
    as any is made.
    """
    zoo = recipe_slices.zoo_options(resolved.recipe)
    if zoo is None or resolved.recipe.calibration is not None:
        raise UserError(
            f"grow={stated}: {resolved.name} has a model file, whose layers have their sizes; "
            "grow is for networks of the zoo, for example recipe=resnet18_int8_host"
        )
    if zoo.batch > 1:
        raise UserError(f"grow={stated}: one picture at a time is timed; leave model.batch out")
    names = list(AXES) if stated == "all" else stated.split(",")
    for name in names:
        if name not in AXES:
            known = ["all", *AXES]
            raise UserError(f"grow={name}: no such axis{did_you_mean(name, known)}")
    return {AXES[name][0]: _doubled(zoo, name) for name in names}


def _doubled(zoo: ZooOptions, axis: str) -> ZooOptions:
    _, option = AXES[axis]
    try:
        return ZooOptions.model_validate({**dict(zoo), option: 2 * getattr(zoo, option)})
    except ValidationError as error:
        (found,) = error.errors()
        raise UserError(f"grow={axis}: model.{option}={found['input']}: {found['msg']}") from error


def rows(work: dict[str, int], medians: dict[str, float]) -> list[dict[str, Any]]:
    """Return a row a network: its work and seconds, and both as multiples of the first one's."""
    return [
        {
            "what": what,
            "macs": count,
            "seconds": medians[what],
            "times_the_macs": count / work[AS_IT_IS],
            "times_the_time": medians[what] / medians[AS_IT_IS],
        }
        for what, count in work.items()
    ]


def table(rows: list[dict[str, Any]]) -> list[dict[str, str]]:
    """Return the rows as they are shown."""
    return [
        {
            "what": row["what"],
            "MMAC": f"{row['macs'] / 1e6:.1f}",
            "median ms": f"{1e3 * row['seconds']:.3f}",
            "GMAC/s": f"{row['macs'] / row['seconds'] / 1e9:.1f}",
            "times the MACs": f"{row['times_the_macs']:.2f}",
            "times the time": f"{row['times_the_time']:.2f}",
        }
        for row in rows
    ]
