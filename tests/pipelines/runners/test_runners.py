"""Packages run natively, emulated and as programs, with the same bits."""

from __future__ import annotations

import json
import os
import platform
import sys
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hw.profile import Hardware
from pipelines.errors import UserError
from pipelines.runners import choose, open_package
from pipelines.runners.emulated import EmulatedRunner
from pipelines.runners.native import NativeRunner, placed
from pipelines.runners.replay import QEMU, qemu_lacks, qemu_prefix, qemu_replay, replay
from tests.stages.packaging.support import AARCH64, ARMV7, TARGETS, X86_64, package, write
from tests.targets import DOTPROD

on_x86_64 = pytest.mark.skipif(
    platform.machine() != "x86_64" or platform.system() != "Linux",
    reason="runs packages for x86-64 Linux natively",
)
arm = pytest.mark.parametrize("hardware", (AARCH64, ARMV7), ids=lambda item: item.name)


@pytest.fixture
def folder(hardware: Hardware, tmp_path: Path) -> Path:
    return write(tmp_path, package(hardware))


def sample(folder: Path, index: int) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    inputs, outputs = open_package(folder).golden()
    return (
        {name: array[index] for name, array in inputs.items()},
        {name: array[index] for name, array in outputs.items()},
    )


@on_x86_64
@pytest.mark.parametrize("hardware", TARGETS, ids=lambda item: item.name)
def test_a_chosen_runner_replays_the_golden_vectors(hardware: Hardware, folder: Path) -> None:
    if hardware is not X86_64:
        pytest.importorskip("unicorn", reason="needs the extra 'emulator'")
    with choose(folder, X86_64) as runner:
        assert runner.how == ("natively" if hardware is X86_64 else "emulated")
        for index in (0, 1, 2, 0):
            inputs, expected = sample(folder, index)
            outputs = runner.run(inputs)
            assert list(outputs) == list(expected)
            for name, array in expected.items():
                assert outputs[name].dtype == array.dtype
                np.testing.assert_array_equal(outputs[name], array)


@on_x86_64
@pytest.mark.parametrize("hardware", [X86_64], ids=["x86_64"])
def test_a_native_runner_changes_its_threads(hardware: Hardware, folder: Path) -> None:
    inputs, expected = sample(folder, 1)
    with NativeRunner(open_package(folder)) as runner:
        for threads in (1, 3, 2):
            outputs, times = runner.timed(inputs, threads, 4)
            assert len(times) == 4 and min(times) > 0
            np.testing.assert_array_equal(outputs["levels"], expected["levels"])
        with pytest.raises(UserError, match="0 threads are not possible; accepted: 1 to 256"):
            runner.run(inputs, 0)


@on_x86_64
@pytest.mark.parametrize("hardware", [X86_64], ids=["x86_64"])
def test_inputs_that_do_not_fit_are_all_named(hardware: Hardware, folder: Path) -> None:
    with NativeRunner(open_package(folder)) as runner, pytest.raises(UserError) as caught:
        runner.run({"picture": np.zeros(3), "image": np.zeros((17, 59), np.int8)})
    assert str(caught.value) == (
        "no input is named 'picture'; 'image' is int8[17, 59]; toy takes image uint8[1, 17, 59]"
    )


@arm
def test_blocks_are_counted(hardware: Hardware, folder: Path) -> None:
    pytest.importorskip("unicorn", reason="needs the extra 'emulator'")
    inputs, expected = sample(folder, 0)
    runner = EmulatedRunner(open_package(folder))
    runner.run(inputs)
    outputs, first = runner.count_blocks(inputs)
    np.testing.assert_array_equal(outputs["scores */"], expected["scores */"])
    _, second = runner.count_blocks(inputs)
    assert first == second
    library = open_package(folder).library().stat().st_size
    assert all(0 < offset < library + (1 << 18) and size > 0 for offset, size in first)
    assert max(first.values()) >= 1003 // 16
    with pytest.raises(UserError, match="the emulator has one thread, not 2; use threads=1"):
        runner.run(inputs, 2)


@arm
def test_a_one_thread_run_calls_no_libc(hardware: Hardware, folder: Path) -> None:
    """No import is mapped in the emulator; only the libc call of `supported` may stop it."""
    pytest.importorskip("unicorn", reason="needs the extra 'emulator'")
    runner = EmulatedRunner(open_package(folder))
    runner.run(sample(folder, 0)[0])
    if hardware is ARMV7:
        with pytest.raises(UserError, match="it called getauxval, which no one-thread run may"):
            runner._call("supported")
    else:
        assert runner._call("supported") == 0


@pytest.mark.parametrize("hardware", [AARCH64], ids=["rpi3"])
def test_a_missing_extra_is_named(
    hardware: Hardware, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "unicorn", None)
    with pytest.raises(UserError, match="install the extra 'emulator'"):
        EmulatedRunner(open_package(folder))


@pytest.mark.parametrize("hardware", [X86_64], ids=["x86_64"])
def test_the_emulator_says_what_it_runs(hardware: Hardware, folder: Path) -> None:
    with pytest.raises(UserError, match="toy is for x86_64; the emulator runs aarch64 and armv7"):
        EmulatedRunner(open_package(folder))


@arm
def test_a_damaged_library_is_no_traceback(hardware: Hardware, folder: Path) -> None:
    pytest.importorskip("unicorn", reason="needs the extra 'emulator'")
    whole = (folder / "libtoy.so").read_bytes()
    for size in (0, 40, 100, len(whole) // 2, len(whole) - 300):
        (folder / "libtoy.so").write_bytes(whole[:size])
        with pytest.raises(UserError, match=r"damaged|failed|does not define"):
            EmulatedRunner(open_package(folder))


@on_x86_64
@pytest.mark.parametrize("hardware", [X86_64], ids=["x86_64"])
def test_the_program_replays(hardware: Hardware, folder: Path) -> None:
    (folder / "toy").chmod(0o644)
    done = replay(open_package(folder), threads=2, repeat=3)
    assert done.is_equal and done.samples == 3
    assert 0 < done.fastest_ms <= done.median_ms
    golden = bytearray((folder / "golden.bin").read_bytes())
    golden[-1] ^= 1
    golden[8:12] = zlib.crc32(golden[12:]).to_bytes(4, "little")
    (folder / "golden.bin").write_bytes(golden)
    done = replay(open_package(folder), threads=1)
    assert not done.is_equal and "sample 2, output levels, byte 1002" in done.text


@arm
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_the_program_replays_under_qemu(hardware: Hardware, folder: Path, threads: int) -> None:
    if lacking := qemu_lacks(hardware.architecture):
        pytest.skip(f"needs {' and '.join(lacking)}")
    done = qemu_replay(open_package(folder), threads, repeat=5)
    assert done.is_equal and done.samples == 3


@pytest.mark.parametrize("hardware", [DOTPROD], ids=["dotprod"])
def test_a_processor_without_dot_products_is_refused(hardware: Hardware, folder: Path) -> None:
    """A Raspberry Pi 4 that is given the package of a 5 says so in one sentence."""
    if lacking := qemu_lacks(hardware.architecture):
        pytest.skip(f"needs {' and '.join(lacking)}")
    prefix = qemu_prefix(hardware.architecture) or ()
    assert replay(open_package(folder), 1, prefix=(*prefix, "-cpu", "cortex-a76")).is_equal
    with pytest.raises(UserError) as caught:
        replay(open_package(folder), 1, prefix=(*prefix, "-cpu", "cortex-a72"))
    assert str(caught.value) == (
        "toy: this package needs a processor with dotprod, fullfp16, lse, neon, rdm, and an "
        "operating system that lets programs use them; this one lacks at least one"
    )


@arm
def test_a_missing_qemu_is_named(
    hardware: Hardware, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(os.environ, "PATH", "")
    with pytest.raises(UserError, match=r"needs qemu-a\w+ and a C .*: apt install qemu-user"):
        qemu_replay(open_package(folder), 2)


@pytest.mark.parametrize("architecture", QEMU)
def test_qemu_is_of_use_with_a_c_library_only(
    architecture: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `apt install qemu-user` leaves a machine, and with the loader of Debian's library."""
    program = tmp_path / QEMU[architecture].program
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    qemu = replace(QEMU[architecture], root=str(tmp_path), loader=f"lib/{architecture}.so")
    monkeypatch.setitem(os.environ, "PATH", str(tmp_path))
    monkeypatch.setitem(QEMU, architecture, qemu)
    assert qemu_lacks(architecture) == [qemu.libc]
    assert qemu_prefix(architecture) is None
    (tmp_path / "lib").mkdir()
    (tmp_path / qemu.loader).write_text("")
    assert qemu_lacks(architecture) == []
    assert qemu_prefix(architecture) == (str(program), "-L", str(tmp_path))


@pytest.mark.parametrize("hardware", [X86_64], ids=["x86_64"])
def test_a_folder_that_is_no_package_is_named(hardware: Hardware, folder: Path) -> None:
    with pytest.raises(UserError, match=r"is no package: it has no manifest\.json"):
        open_package(folder / "nowhere")
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**manifest, "manifest_version": 9}))
    with pytest.raises(UserError, match="has version 9, this bitkiln reads 1"):
        open_package(folder)
    (folder / "manifest.json").write_text("{}")
    with pytest.raises(UserError, match=r"is damaged \('manifest_version'\)"):
        open_package(folder)
    (folder / "manifest.json").write_text(json.dumps(manifest))
    (folder / "libtoy.so").unlink()
    with pytest.raises(UserError, match=r"has no libtoy\.so; it was built with formats: shared"):
        open_package(folder).library()


@pytest.mark.parametrize("size", [1, 4032, 4096, 3 * 4096 - 64, 3 * 4096])
def test_inputs_lie_where_packages_read_them_in_place(size: int) -> None:
    array = np.arange(size, dtype=np.uint8)
    for _ in range(4):
        copy = placed(array)
        assert copy.tobytes() == array.tobytes()
        assert copy.ctypes.data % 64 == 0
        assert (copy.ctypes.data + size - 1) % 4096 + 64 < 4096
