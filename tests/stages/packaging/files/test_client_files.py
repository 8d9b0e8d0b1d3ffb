"""What lets others use a package: its loader, examples, files for pkg-config and CMake, NOTICE."""

from __future__ import annotations

import ast
import base64
import email
import gc
import hashlib
import importlib.util
import io
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.documents.board_files import list_boards, load_board
from pipelines.recipe.overrides import span
from pipelines.runners.native import placed
from stages.kinds import Files
from stages.options import PACKAGE_FORMATS, PackageFormat, PackageOptions
from stages.packaging.files.bill_of_materials import bill, notice, pieces
from stages.packaging.files.client_files import loader, shipped
from stages.packaging.files.wheel import tag
from stages.packaging.program.program import TensorSpec
from stages.packaging.shipped.loader import in_place
from tests.pages import ROOT
from tests.stages.packaging.support import (
    AARCH64,
    TARGETS,
    X86_64,
    assembled,
    make_golden,
    make_program,
    package,
    write,
    zig,
)
from tests.targets import is_native

native = pytest.mark.skipif(not is_native(X86_64), reason="runs packages for x86-64 natively")


def needs(tool: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(not shutil.which(tool), reason=f"{tool} is not installed")


def imported(path: Path) -> ModuleType:
    """A loader, as `import` would give it."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path, package(X86_64))


@pytest.fixture
def toy(folder: Path) -> Any:
    return imported(folder / "toy.py")


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


@native
def test_example_in_c_runs(folder: Path) -> None:
    golden = make_golden()
    zig(folder, *compiling(folder, "example.c"))
    (folder / "image").write_bytes(golden.inputs["image"][0].tobytes())
    printed = subprocess.run(
        [folder / "example", "image"], cwd=folder, capture_output=True, text=True, check=True
    )
    assert printed.stdout == begins(golden.outputs["scores */"][0], golden.outputs["levels"][0])
    assert subprocess.run([folder / "example"], check=False, capture_output=True).returncode == 0
    few = subprocess.run(
        [folder / "example", "toy.pc"], cwd=folder, capture_output=True, text=True, check=False
    )
    assert (few.returncode, few.stderr) == (2, "toy.pc does not hold 1003 bytes\n")


def begins(*outputs: np.ndarray) -> str:
    """What an example prints."""
    rows = [output.reshape(-1)[:10].tolist() for output in outputs]
    return "".join(f"out_{i}: {' '.join(map(str, row))}\n" for i, row in enumerate(rows))


def compiling(folder: Path, name: str) -> list[str]:
    """The first command that an example names, warnings refused, for `zig`."""
    text = (folder / name).read_text()
    (line, _) = re.findall(r"^[ /*]+(c(?:c|\+\+) .*)$", text, re.MULTILINE)
    return [*line.replace("'", "").split(), "-Wall", "-Wextra", "-Werror"]


@native
def test_example_in_cpp_prints_what_that_in_c_does(folder: Path) -> None:
    """Zig would build its C++ library first, for a minute: this machine's compiler links it."""
    command = compiling(folder, "example.cpp")
    if not shutil.which("c++"):
        zig(folder, "c++", "-std=c++17", "-c", "-Wall", "-Werror", "example.cpp", "-o", "example.o")
        pytest.skip("c++ is not installed: the example was compiled, and not run")
    subprocess.run(command, cwd=folder, check=True)
    ran = subprocess.run([folder / "example"], capture_output=True, text=True, check=True)
    with imported(folder / "toy.py").Network() as net:
        outputs = net(np.zeros((1, 17, 59), np.uint8))
    assert ran.stdout == begins(outputs["scores */"], outputs["levels"])


@native
@needs("pkg-config")
@needs("cc")
def test_pkg_config_finds_the_package_wherever_it_lies(folder: Path) -> None:
    moved = folder.parent / "else where"
    shutil.copytree(folder, moved)
    environment = {**os.environ, "PKG_CONFIG_PATH": str(moved)}
    for more in ([], ["--static"]):
        done = subprocess.run(
            ["pkg-config", *more, "--cflags", "--libs", "toy"],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        assert ("-pthread" in done.stdout) == bool(more)
        line = f"cc example.c {done.stdout.strip()} -Wl,-rpath,'$ORIGIN' -o example"
        subprocess.run(["sh", "-c", line], cwd=moved, check=True)
        subprocess.run([moved / "example"], capture_output=True, check=True)


@native
@needs("cmake")
@needs("cc")
def test_cmake_finds_the_package(folder: Path) -> None:
    project = folder.parent / "project"
    project.mkdir()
    (project / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.13)\nproject(p C)\n"
        f'find_package(toy CONFIG REQUIRED PATHS "{folder}")\n'
        "foreach(kind shared static)\n"
        f'add_executable(${{kind}}_one "{folder}/example.c")\n'
        "target_link_libraries(${kind}_one toy::${kind})\nendforeach()\n"
    )
    out = str(project / "out")
    for words in (["-S", str(project), "-B", out], ["--build", out]):
        done = subprocess.run(["cmake", *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    ran = [
        subprocess.run([project / "out" / f"{kind}_one"], capture_output=True, check=True).stdout
        for kind in ("shared", "static")
    ]
    assert ran[0] == ran[1] and ran[0].startswith(b"out_0:")


USING = {"toy.pc", "toyConfig.cmake", "example.c", "example.cpp"}


@pytest.mark.parametrize(
    ("formats", "more"),
    [
        (("executable",), set()),
        (("static",), USING),
        (("shared",), {*USING, "toy.py"}),
        (("static", "executable"), USING),
        (("shared", "static", "executable"), {*USING, "toy.py"}),
    ],
)
def test_files_are_those_the_formats_have_a_use_for(
    formats: tuple[PackageFormat, ...], more: set[str]
) -> None:
    spec = TensorSpec("a", "float32", (1,))
    files = {n: d.decode() for n, d in shipped("toy", [], [spec], AARCH64, formats).items()}
    assert files.keys() == more
    found = pieces("toy", formats, AARCH64, {"ziglang": "1"})
    files["NOTICE"] = notice(found)
    assert ("LGPL" in files["NOTICE"] or "Lesser" in files["NOTICE"]) == ("executable" in formats)
    for library, format_ in (("libtoy.so", "shared"), ("libtoy.a", "static")):
        assert (library in files["NOTICE"]) == (format_ in formats)
        if more:
            assert (library in files["toyConfig.cmake"]) == (format_ in formats)
    for name, text in files.items():
        assert not re.search(r"@[A-Z]+@", text), name


@pytest.mark.parametrize("hardware", TARGETS, ids=lambda item: item.name)
def test_manifest_lists_them_with_their_hashes(hardware: Any) -> None:
    files = package(hardware)
    listed = json.loads(files["manifest.json"])["files"]
    assert listed.keys() == files.keys() - {"manifest.json"}
    for name, entry in listed.items():
        assert entry["sha256"] == hashlib.sha256(files[name]).hexdigest()


@given(st.sets(st.sampled_from([*PACKAGE_FORMATS]), min_size=1))
def test_notice_and_bill_say_the_same(formats: set[PackageFormat]) -> None:
    found = pieces("toy", formats, AARCH64, {"ziglang": "1"})
    text = notice(found).partition("Licence of Zig\n")[0]
    said = json.loads(bill("toy", "1", found, AARCH64, {}, "00" * 32, {}))
    for part in said["components"][1:]:
        for place in part["properties"]:
            assert place["value"] in text
    assert ("compiler-rt" in text) == any(p["name"] == "compiler-rt" for p in said["components"])
    assert ("glibc (crt1.o" in text) == any(p["name"][:5] == "glibc" for p in said["components"])


@pytest.mark.parametrize("hardware", TARGETS, ids=lambda item: item.name)
def test_the_bill_is_of_cyclonedx_and_names_the_files(hardware: Any) -> None:
    validation = pytest.importorskip("cyclonedx.validation.json")
    schema = pytest.importorskip("cyclonedx.schema").SchemaVersion.V1_6
    files = package(hardware)
    text = files["toy.cdx.json"].decode()
    assert validation.JsonStrictValidator(schema).validate_str(text) is None
    bill = json.loads(text)
    named = bill["metadata"]["component"]
    assert {item["name"] for item in named["components"]} == files.keys() - {
        *("manifest.json", "toy.cdx.json")
    }
    for item in named["components"]:
        assert item["hashes"][0]["content"] == hashlib.sha256(files[item["name"]]).hexdigest()
    assert named["version"] == json.loads(files["manifest.json"])["version"]
    assert "timestamp" not in text


def wheel_of(version: str | None = None) -> tuple[str, bytes, Files]:
    """Name and content of a wheel, and the package that it is of."""
    files = assembled(
        program=make_program(X86_64),
        golden=make_golden(),
        options=PackageOptions(name="toy", formats=("shared", "wheel"), version=version),
        hardware=X86_64,
        provenance={},
    )
    (name,) = (name for name in files if name.endswith(".whl"))
    return name, files[name], files


@native
def test_pip_installs_the_wheel(tmp_path: Path) -> None:
    name, data, files = wheel_of()
    (tmp_path / name).write_bytes(data)
    place = tmp_path / "site"
    pip = [sys.executable, "-m", "pip", "install", "--no-index", "--no-deps", "--no-compile"]
    done = subprocess.run(
        [*pip, "--target", str(place), str(tmp_path / name)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (place / "toy" / "libtoy.so").read_bytes() == files["libtoy.so"]
    assert_golden_without_bitkiln(place)


def test_a_wheel_is_as_its_record_and_its_name_say() -> None:
    packaging = pytest.importorskip("packaging.utils")
    name, data, files = wheel_of("1.4.2rc1")
    distribution, version, _, tags = packaging.parse_wheel_filename(name)
    assert (distribution, str(version)) == ("toy", "1.4.2rc1")
    assert {str(tag) for tag in tags} == {"py3-none-manylinux_2_28_x86_64"}
    with zipfile.ZipFile(io.BytesIO(data)) as wheel:
        assert wheel.testzip() is None
        about = "toy-1.4.2rc1.dist-info"
        entries = {item.filename: wheel.read(item) for item in wheel.infolist()}
        modes = {i.filename: i.external_attr >> 16 & 0o777 for i in wheel.infolist()}
    lines = [line.split(",") for line in entries[f"{about}/RECORD"].decode().splitlines()]
    assert {line[0] for line in lines} == entries.keys()
    for file, digest, size in lines:
        if file != f"{about}/RECORD":
            coded = base64.urlsafe_b64encode(hashlib.sha256(entries[file]).digest())
            assert digest == f"sha256={coded.decode().rstrip('=')}"
            assert int(size) == len(entries[file])
    assert {name for name, mode in modes.items() if mode != 0o644} == {"toy/libtoy.so"}
    told = email.message_from_bytes(entries[f"{about}/METADATA"])
    assert (told["Name"], told["Version"], told["Requires-Dist"]) == ("toy", "1.4.2rc1", "numpy")
    assert entries[f"{about}/licenses/NOTICE"] == files["NOTICE"]
    assert entries[f"{about}/sboms/toy.cdx.json"] == files["toy.cdx.json"]


@pytest.mark.parametrize("board", list_boards())
def test_every_board_has_a_tag_that_pip_knows(board: str) -> None:
    tags = pytest.importorskip("packaging.tags")
    found = load_board(board, span("hardware", board), [])
    assert found is not None
    machine = {"armv7": "armv7l"}.get(found.architecture, found.architecture)
    assert re.fullmatch(rf"manylinux_2_\d+_{machine}", tag(found))
    if found.architecture == "x86_64" and board != "host" and sys.platform == "linux":
        assert tag(found) in {each.platform for each in tags.sys_tags()}


@pytest.mark.parametrize("version", ["1", "0.0.1", "2.0rc1", "1.0.post2", "1.0a1.dev3", "10.20.30"])
def test_versions_are_as_pip_writes_them(version: str) -> None:
    packaging = pytest.importorskip("packaging.version")
    assert PackageOptions(name="toy", version=version).version == version
    assert str(packaging.Version(version)) == version


@pytest.mark.parametrize("version", ["", "v1", "1.0-1", "01", "1.0 ", "1/2", "1.0+x", "latest"])
def test_what_is_no_version(version: str) -> None:
    with pytest.raises(ValueError, match=r"is no version; write numbers, such as 1\.4\.2"):
        PackageOptions(name="toy", version=version)


def test_a_wheel_needs_the_library() -> None:
    with pytest.raises(ValueError, match=r"a wheel holds the shared library; write \[shared, "):
        PackageOptions(name="toy", formats=("static", "wheel"))


def test_licences_are_the_ones_of_the_sources() -> None:
    text = package(X86_64)["NOTICE"].decode()
    assert (ROOT / "LICENSE").read_text().strip("\n") in text
    found = importlib.util.find_spec("ziglang")
    assert found and found.origin
    assert (Path(found.origin).parent / "LICENSE").read_text().strip("\n") in text
