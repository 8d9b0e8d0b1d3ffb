"""Names of classes: a text file with one a line."""

from __future__ import annotations

from pathlib import Path

from pipelines.errors import UserError, shown


def read(path: Path, classes: int | None = None) -> list[str]:
    """Return the class names of a text file, one a line; there must be `classes` if given."""
    try:
        names = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    except FileNotFoundError:
        raise UserError(f"{shown(path)} does not exist") from None
    except (OSError, ValueError) as error:
        raise UserError(f"{shown(path)} is not a UTF-8 text file") from error
    if classes is not None and len(names) != classes:
        raise UserError(
            f"{shown(path)} has {len(names)} lines, and the output has {classes} classes; "
            "give one name a line, in the order of the classes"
        )
    return names
