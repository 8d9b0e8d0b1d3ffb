"""Runs on a board, by its own Python: a model file in an engine that is installed there.

`python3 engine.py ENGINE MODEL INPUTS.npz THREADS` prints one line of JSON when it is ready, and one
for each line of its input, which says how many inferences to time. Nothing of bitkiln is needed.
"""

import json
import sys
import time
from importlib import metadata


def onnxruntime(model, inputs, threads):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN201
    """Return what runs an inference, and what gives its outputs."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    options.add_session_config_entry("session.set_denormal_as_zero", "1")
    options.add_session_config_entry("session.force_spinning_stop", "1")
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    given = {item.name: array for item, array in zip(session.get_inputs(), inputs)}  # noqa: B905
    return lambda: session.run(None, given)


def litert(model, inputs, threads):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN201
    """Return what runs an inference."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_path=model, num_threads=threads)
    for item, array in zip(interpreter.get_input_details(), inputs):  # noqa: B905
        interpreter.resize_tensor_input(item["index"], list(array.shape))
    interpreter.allocate_tensors()
    for item, array in zip(interpreter.get_input_details(), inputs):  # noqa: B905
        interpreter.set_tensor(item["index"], array)
    details = interpreter.get_output_details()

    def run():  # type: ignore[no-untyped-def] # noqa: ANN202
        interpreter.invoke()
        return [interpreter.get_tensor(item["index"]) for item in details]

    return run


def main() -> None:
    """Load the model, then time what is asked for."""
    import numpy as np

    name, model, file, threads = sys.argv[1:]
    with np.load(file, allow_pickle=False) as kept:
        inputs = [kept[key] for key in sorted(kept.files, key=int)]
    engine = {"onnxruntime": onnxruntime, "litert": litert}[name]
    package = {"onnxruntime": "onnxruntime", "litert": "ai-edge-litert"}[name]
    run = engine(model, inputs, int(threads))
    outputs = [np.asarray(each, np.float64).ravel().tolist() for each in run()]
    said = {"version": metadata.version(package), "outputs": outputs}
    print(json.dumps(said), flush=True)
    for line in sys.stdin:
        taken = []
        for _ in range(int(line)):
            begin = time.perf_counter()
            run()
            taken.append(time.perf_counter() - begin)
        print(json.dumps({"seconds": taken}), flush=True)


if __name__ == "__main__":
    main()
