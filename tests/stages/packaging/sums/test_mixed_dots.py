"""A package of USMMLA, which the emulator has not, gives the bits of its graph under qemu."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.runners import open_package
from pipelines.runners.replay import qemu_lacks, qemu_replay
from stages import packaging, scheduling, synthesizing
from stages.graph import interpret
from stages.kinds import Golden, in_memory
from stages.options import PackageOptions
from tests.kept import kept
from tests.stages.packaging.integer_net import Net
from tests.stages.packaging.programs import compile_at_once, pack
from tests.stages.packaging.support import write
from tests.targets import I8MM


def test_mixed_dot_products(tmp_path: Path) -> None:
    if lacking := qemu_lacks(I8MM.architecture):
        pytest.skip(f"needs {' and '.join(lacking)}")
    net = Net((1, 9, 7, 16), "uint8")
    x = net.conv(net.x, "wide", 40)
    x = net.conv(x, "narrow", 24, kernel=1, zero_point=3, dtype="uint8")
    packed = pack(net.model(net.conv(x, "last", 16, strides=[2, 2])), I8MM)
    kernels = [signature.products for signature in synthesizing.wanted(packed)]
    assert {products.kind for products in kernels if products is not None} == {"matrix_dots"}
    inputs = net.inputs()
    expected = interpret.run(packed, inputs)
    samples = [{name: x[None] for name, x in tensors.items()} for tensors in (inputs, expected)]
    files = packaging.run(
        model=packed,
        bodies=synthesizing.run(model=packed, hardware=I8MM, memo=kept),
        schedules=scheduling.run(model=packed, hardware=I8MM, choices={}),
        golden=Golden(*samples),
        options=PackageOptions(name="net"),
        hardware=I8MM,
        memo=compile_at_once,
    )
    assert qemu_replay(open_package(write(tmp_path, in_memory(files))), 1).is_equal
