"""The loader: a package as a Python class."""

from __future__ import annotations

import ast
import gc
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.runners.native import placed
from stages.packaging.files.client_files import loader
from stages.packaging.program.kernel_program import TensorSpec
from stages.packaging.shipped.loader import in_place
from tests.stages.packaging.files.clients import imported
from tests.stages.packaging.files.test_client_files import native
from tests.stages.packaging.support import (
    AARCH64,
    make_golden,
    package,
)

ALONE = """
import sys
for name in ("pipelines", "stages", "hw", "tvm"):
    sys.modules[name] = None  # importing it fails
sys.path.insert(0, sys.argv[1])
import numpy as np
from toy import Network
images, found = np.load("images.npy"), {}
for threads in (1, 2):
    with Network(threads=threads) as net:
        for given in ("array", "mapping"):
            runs = [net(image if given == "array" else {"image": image}) for image in images]
            for name in runs[0]:
                found[f"{threads} {given} {name}"] = np.stack([run[name] for run in runs])
np.savez("found", **{str(i): array for i, array in enumerate(found.values())})
print(list(found))
"""


def assert_golden_without_bitkiln(folder: Path) -> None:
    """Fail unless the loader found in a folder gives the golden outputs, and needs NumPy alone."""
    golden = make_golden()
    np.save(folder / "images.npy", golden.inputs["image"])
    done = subprocess.run(
        [sys.executable, "-I", "-c", ALONE, str(folder)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    labels = ast.literal_eval(done.stdout)
    assert len(labels) == 2 * 2 * len(golden.outputs)
    with np.load(folder / "found.npz") as found:
        for index, label in enumerate(labels):
            expected = golden.outputs[label.split(" ", 2)[2]]
            assert found[str(index)].dtype == expected.dtype
            np.testing.assert_array_equal(found[str(index)], expected, err_msg=label)


@native
def test_loader_gives_the_golden_outputs_without_bitkiln(folder: Path) -> None:
    assert_golden_without_bitkiln(folder)


@native
def test_loader_takes_any_layout_and_keeps_what_it_gave(toy: Any) -> None:
    golden = make_golden()
    first, second = golden.inputs["image"][:2]
    with toy.Network() as net:
        kept = net(np.asfortranarray(first))["levels"]
        net(second[:, ::-1, ::-1][:, ::-1, ::-1])
        np.testing.assert_array_equal(kept, golden.outputs["levels"][0])
        assert all(place[3].ctypes.data % 64 == 0 for place in net._places)
        shown = "<toy: image uint8[1, 17, 59] -> scores */ int32[1, 1003], levels uint8[1, 17, 59]"
        assert repr(net) == f"{shown}, 1 threads>"
    assert repr(net) == f"{shown}, closed>"


@native
def test_threads_of_python_take_turns(toy: Any) -> None:
    golden = make_golden()
    with toy.Network(threads=2) as net, ThreadPoolExecutor(4) as pool:
        indices = [index % 3 for index in range(200)]
        found = pool.map(lambda index: net(golden.inputs["image"][index]), indices)
        for index, outputs in zip(indices, found, strict=True):
            np.testing.assert_array_equal(outputs["levels"], golden.outputs["levels"][index])


@native
def test_one_array_is_not_enough_for_two_inputs(toy: Any) -> None:
    with toy.Network() as net:
        net.inputs = (*net.inputs, toy.Tensor("other", "int8", (2,)))
        with pytest.raises(toy.InputError) as caught:
            net(np.zeros(2, np.int8))
    assert str(caught.value) == (
        "ndarray was given; toy takes a mapping of 2 inputs: image uint8[1, 17, 59], other int8[2]"
    )


WRONG = {
    "name": {"picture": np.zeros((1, 17, 59), np.uint8)},
    "more": {"image": np.zeros((1, 17, 59), np.uint8), "b": np.zeros(1)},
    "dtype": np.zeros((1, 17, 59), np.int8),
    "shape": np.zeros((17, 59), np.uint8),
    "list": {"image": [1, 2]},
    "order": np.zeros((1, 17, 59), ">u2"),
}


@native
def test_inputs_that_do_not_fit_are_named(toy: Any) -> None:
    said = {}
    with toy.Network() as net:
        for kind, inputs in WRONG.items():
            with pytest.raises(toy.InputError) as caught:
                net(inputs)
            said[kind] = str(caught.value).removesuffix("; toy takes image uint8[1, 17, 59]")
    assert said == {
        "name": "no input is named 'picture'; input 'image' is missing",
        "more": "no input is named 'b'",
        "dtype": "'image' is int8[1, 17, 59]",
        "shape": "'image' is uint8[17, 59]",
        "list": "'image' is no NumPy array but list",
        "order": "'image' is >u2[1, 17, 59]",
    }


@native
@pytest.mark.parametrize("threads", (0, 257, 1.0, "2"))
def test_threads_that_are_not_possible(toy: Any, threads: Any) -> None:
    with pytest.raises(toy.NetworkError) as caught:
        toy.Network(threads=threads)
    assert str(caught.value) == f"{threads!r} threads are not possible; accepted: 1 to 256"


@native
def test_libraries_that_do_not_fit(folder: Path) -> None:
    path = folder / "libtoy.so"
    text = (folder / "toy.py").read_text()
    assert text.count("ABI_VERSION = 2\n") == 1
    (folder / "toy.py").write_text(text.replace("ABI_VERSION = 2\n", "ABI_VERSION = 3\n"))
    newer = imported(folder / "toy.py")
    with pytest.raises(newer.LibraryError) as caught:
        newer.Network()
    assert str(caught.value) == (
        f"{path} has ABI version 2, toy.py is for 3; keep the files of one build together"
    )
    foreign = folder / "foreign.so"
    foreign.write_bytes(package(AARCH64)["libtoy.so"])
    with pytest.raises(newer.LibraryError, match=r"foreign\.so cannot be loaded here"):
        newer.Network(library=foreign)
    path.unlink()
    with pytest.raises(newer.LibraryError) as caught:
        newer.Network()
    assert str(caught.value) == f"{path} is missing; keep libtoy.so beside toy.py"


@native
def test_threads_end_with_the_network(toy: Any) -> None:
    def tasks() -> int:
        return len(list(Path("/proc/self/task").iterdir()))

    image = make_golden().inputs["image"][0]
    before = tasks()
    net = toy.Network(threads=3)
    net(image)
    assert tasks() == before + 2
    del net
    gc.collect()
    assert tasks() == before
    net = toy.Network(threads=3)
    net.close()
    net.close()
    assert tasks() == before
    with pytest.raises(toy.NetworkError, match="toy is closed; make a new Network"):
        net(image)


@native
def test_a_forked_child_is_told_what_to_do(folder: Path) -> None:
    code = """
import os, numpy as np, toy
net, image = toy.Network(threads=2), np.zeros((1, 17, 59), np.uint8)
expected = net(image)["levels"]
if os.fork() == 0:
    try:
        net(image)
    except toy.NetworkError as error:
        print(error, flush=True)
    fresh = toy.Network(threads=2)(image)["levels"]
    raise SystemExit(0 if (fresh == expected).all() else 1)
raise SystemExit(os.waitstatus_to_exitcode(os.wait()[1]))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("toy: the context's threads are not in this process")
    assert done.stdout.endswith("in Python: make a new Network in this process\n")


@native
def test_quantize_and_dequantize(toy: Any) -> None:
    """The input's scale is 0.5, its zero point 3; halves go to the even integer."""
    with toy.Network() as net:
        stored = net.quantize("image", [-9, -1.5, 0, 0.25, 0.75, 1, 125.9, 1e9])
        assert stored.dtype == np.uint8
        assert stored.tolist() == [0, 0, 3, 3, 5, 5, 255, 255]
        every = np.arange(256, dtype=np.uint8)
        real = net.dequantize("image", every)
        assert real.dtype == np.float32
        np.testing.assert_array_equal(real, (every.astype(np.float32) - 3) / 2)
        np.testing.assert_array_equal(net.quantize("image", real), every)
        with pytest.raises(toy.InputError) as caught:
            net.quantize("levels", real)
        assert str(caught.value) == (
            "'levels' stores no quantized values; of toy these do: image uint8[1, 17, 59]"
        )
        with pytest.raises(toy.InputError, match="not numbers"):
            net.quantize("image", [np.nan])


@given(st.lists(st.text(min_size=1), min_size=1, max_size=3, unique=True))
def test_loaders_of_any_names_are_python_3_9(names: list[str]) -> None:
    meaning = {"scale": 0.1, "zero_point": 0.5}
    specs = [TensorSpec(name, "int8", (2, 3), meaning) for name in names]
    tree = ast.parse(loader("net", specs, specs[:1]), feature_version=(3, 9))
    (calls,) = (
        node.value.elts
        for node in tree.body
        if isinstance(node, ast.AnnAssign)
        and ast.unparse(node.target) == "INPUTS"
        and isinstance(node.value, ast.Tuple)
    )
    found = [[ast.literal_eval(a) for a in c.args] for c in calls if isinstance(c, ast.Call)]
    assert found == [[name, "int8", (2, 3), meaning] for name in names]


@pytest.mark.parametrize("nbytes", (1, 63, 64, 65, 4031, 4032, 4033, 4096, 9000))
def test_a_loader_places_inputs_as_runners_do(nbytes: int) -> None:
    for array in (in_place(nbytes), placed(np.zeros(nbytes, np.uint8))):
        last = array.ctypes.data + nbytes - 1
        assert array.nbytes == nbytes and array.ctypes.data % 64 == 0
        assert last % 4096 + 64 < 4096
