"""Golden vectors of a model file, imported for them."""

from __future__ import annotations

from stages import importing
from stages.kinds import Golden
from stages.options import GoldenOptions, ImportOptions


def golden(
    *, source: bytes, options: GoldenOptions, imports: ImportOptions | None = None
) -> Golden:
    """What `stages.importing.golden` gives of a file alone."""
    model = importing.run(source=source, options=imports or ImportOptions())
    return importing.golden(source=source, model=model, options=options)
