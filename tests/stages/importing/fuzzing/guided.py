"""Coverage-guided fuzzing: `python -m ...guided CORPUS [libFuzzer options]`.

What of the importers' Python a file reaches decides which variants are pursued.
"""

from __future__ import annotations

import resource
import sys

import atheris

with atheris.instrument_imports(include=["stages.importing"]):
    from tests.stages.importing.fuzzing.child import BYTES, survive


def main() -> None:
    """Hand over to libFuzzer, which never returns."""
    resource.setrlimit(resource.RLIMIT_DATA, (BYTES, BYTES))
    atheris.Setup(sys.argv, survive)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
