"""Feeds damaged files to the importers: `python -m ...child FOLDER SEED COUNT SECONDS`.

FOLDER holds the corpus. The process ends with 0 when every file ended in a model or a StageError;
else it writes the file to FOLDER/failed and ends with 1, or is ended by its limits, and then
FOLDER/running is the file. SECONDS bounds the whole; COUNT the number of files.
"""

from __future__ import annotations

import random
import resource
import sys
import time
import traceback
from pathlib import Path

from stages import importing
from stages.errors import StageError
from stages.options import ImportOptions
from tests.stages.importing.fuzzing.mutating import mutated

BYTES = 6 << 30
"""Most memory the process may have; the largest tensor accepted takes 1 GiB."""
SLOW = 30.0
"""A file that takes longer, in seconds, is a failure: of small corpora all take milliseconds."""


def survive(source: bytes, options: ImportOptions) -> None:
    """Describe and import a file; whatever is raised but StageError is a fault of the importer."""
    for attempt in (
        lambda: importing.describe(source=source, options=options),
        lambda: importing.run(source=source, options=options),
    ):
        try:
            attempt()
        except StageError as error:
            assert str(error).strip(), "an error without a word"


def options_in(folder: Path) -> ImportOptions:
    """What the files of a corpus need to be told, as it says itself."""
    text = (folder / "shapes.json").read_text(encoding="utf-8")
    return ImportOptions.model_validate_json(f'{{"inputs": {text}}}')


def main(folder: Path, seed: int, count: int, seconds: float) -> int:
    """Feed `count` variants of the corpus, or as many as the time allows."""
    resource.setrlimit(resource.RLIMIT_DATA, (BYTES, BYTES))
    corpus = [path.read_bytes() for path in sorted(folder.glob("*.model"))]
    options = options_in(folder)
    rng = random.Random(seed)
    ends = time.monotonic() + seconds
    done = 0
    while done < count and time.monotonic() < ends:
        source = mutated(rng.choice(corpus), corpus, rng)
        (folder / "running").write_bytes(source)
        started = time.monotonic()
        try:
            survive(source, options)
            if time.monotonic() - started > SLOW:
                raise TimeoutError(f"took {time.monotonic() - started:.0f} seconds")
        except BaseException:
            (folder / "failed").write_bytes(source)
            traceback.print_exc()
            return 1
        done += 1
    print(f"{done} files")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])))
