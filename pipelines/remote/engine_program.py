"""Runs on a board, by its own Python: a model file in an engine that is installed there.

`python3 engine_program.py ENGINE MODEL INPUTS.npz THREADS` prints a line of JSON as soon as it is
ready, and one for each line of its input, which says how many inferences to time. Nothing of
bitkiln is needed there.
"""

from __future__ import annotations

import json
import sys
import time
from importlib import metadata
from typing import Any

PACKAGES = {"onnxruntime": "onnxruntime", "litert": "ai-edge-litert"}


def onnxruntime(model: str, inputs: list[Any], threads: int) -> Any:
    """Return what runs an inference and gives its outputs."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    # Neither shall values of a twin shrink to denormals, nor its threads spin in another's turn.
    options.add_session_config_entry("session.set_denormal_as_zero", "1")
    options.add_session_config_entry("session.force_spinning_stop", "1")
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    names = [item.name for item in session.get_inputs()]
    given = dict(zip(names, inputs))  # noqa: B905 - for the Python of older boards
    return lambda: session.run(None, given)


def litert(model: str, inputs: list[Any], threads: int) -> Any:
    """Return what runs an inference and gives its outputs."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_path=model, num_threads=threads)
    places = [item["index"] for item in interpreter.get_input_details()]
    for place, array in zip(places, inputs):  # noqa: B905
        interpreter.resize_tensor_input(place, list(array.shape))
    interpreter.allocate_tensors()
    for place, array in zip(places, inputs):  # noqa: B905
        interpreter.set_tensor(place, array)
    results = [item["index"] for item in interpreter.get_output_details()]

    def run() -> list[Any]:
        interpreter.invoke()
        return [interpreter.get_tensor(place) for place in results]

    return run


def main() -> None:
    """Load the model, then time what is asked for."""
    import numpy as np

    name, model, file, threads = sys.argv[1:]
    with np.load(file, allow_pickle=False) as kept:
        inputs = [kept[key] for key in sorted(kept.files, key=int)]
    load: Any = {"onnxruntime": onnxruntime, "litert": litert}[name]
    run = load(model, inputs, int(threads))
    outputs = [np.asarray(each, np.float64).ravel().tolist() for each in run()]
    print(json.dumps({"version": metadata.version(PACKAGES[name]), "outputs": outputs}), flush=True)
    for line in sys.stdin:
        taken = []
        for _ in range(int(line)):
            begin = time.perf_counter()
            run()
            taken.append(time.perf_counter() - begin)
        print(json.dumps({"seconds": taken}), flush=True)


if __name__ == "__main__":
    main()
