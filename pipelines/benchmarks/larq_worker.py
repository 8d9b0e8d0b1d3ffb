"""Runs a file on Larq Compute Engine, in whatever Python has that.

Larq's wheels want a Python and a NumPy of their time, so this file is run by itself in an
environment of its own and imports nothing of bitkiln's: `larq_worker.py FILE ARRAYS N WAY`. ARRAYS
is an .npz of the inputs in order, N the threads, WAY default or fastest. It answers each line of
its input by one line: `time COUNT` by the seconds that a run takes on average, `outputs NPZ` by
writing them.
"""

import importlib.util
import sys
import time
import types
from pathlib import Path
from typing import Any

import numpy as np


def interpreter(source: bytes, threads: int, way: str) -> Any:
    """Larq's interpreter; `fastest` has indirect binary products, and float32 by XNNPACK."""
    found = importlib.util.find_spec("larq_compute_engine")
    if found is None or found.submodule_search_locations is None:
        raise ImportError("larq-compute-engine is not installed")
    # Its __init__ loads the converter, which needs TensorFlow; its interpreter does not.
    package = types.ModuleType(found.name)
    package.__path__ = list(found.submodule_search_locations)
    sys.modules[found.name] = package
    from larq_compute_engine.tflite.python import interpreter_wrapper_lite as larq

    is_fastest = way == "fastest"
    return larq.LiteInterpreter(source, threads, False, is_fastest, is_fastest)


def main(file: str, arrays: str, threads: str, way: str) -> None:
    """Load, run once, and answer what is asked until there is no more."""
    larq = interpreter(Path(file).read_bytes(), int(threads), way)
    with np.load(arrays) as stored:
        inputs = [stored[name] for name in stored.files]
    larq.predict(inputs)
    print("ready", flush=True)
    for line in sys.stdin:
        word, value = line.rstrip("\n").split(" ", 1)
        if word == "time":
            begin = time.perf_counter()
            for _ in range(int(value)):
                larq.predict(inputs)
            print((time.perf_counter() - begin) / int(value), flush=True)
        else:
            np.savez(value, *larq.predict(inputs))
            print("written", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
