"""Coverage-guided fuzzing: `python -m ...guided CORPUS [libFuzzer options]`.

What of the importers' Python a file reaches decides which variants are pursued.
"""

from __future__ import annotations

import random
import resource
import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["stages.importing"]):
    from stages.importing.formats import FORMATS

    for known in FORMATS:
        known.load()
    from tests.stages.importing.fuzzing.child import BYTES, options_in, survive
    from tests.stages.importing.fuzzing.mutating import IN_ARCHIVES, in_archive


def _mutated(source: bytes, most: int, seed: int) -> bytes:
    """What libFuzzer makes of a file; of an archive, of one of its members."""
    rng = random.Random(seed)
    if rng.random() < IN_ARCHIVES:
        return in_archive(source, rng, lambda member: atheris.Mutate(member, most))
    return bytes(atheris.Mutate(source, most))


def main() -> None:
    """Hand over to libFuzzer, which never returns."""
    resource.setrlimit(resource.RLIMIT_DATA, (BYTES, BYTES))
    options = options_in(Path(sys.argv[1]))
    atheris.Setup(sys.argv, lambda source: survive(source, options), custom_mutator=_mutated)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
