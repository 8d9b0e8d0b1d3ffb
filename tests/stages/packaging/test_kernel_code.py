"""The compiled code of kernels: nothing called or spilled where the time goes, and small."""

from __future__ import annotations

import re
from io import BytesIO

import pytest

from hw.profile import Hardware
from stages import importing
from stages.importing.zoo import build
from stages.kinds import Model
from stages.options import ImportOptions, ZooOptions
from tests.stages.importing.graphs import quantization
from tests.stages.packaging.level_net import BIT, MAC, Net
from tests.stages.packaging.listings import (
    calls,
    count,
    innermost_loops,
    listing,
    stack_accesses,
)
from tests.stages.packaging.programs import compile_program, lowered, pack
from tests.targets import AARCH64, AMX, ARMV7, AVX512VPOPCNTDQ

# Layers of ResNet-18: channels, width of the image, activation bits, weight bits.
LAYERS = ((64, 56, 2, 1), (128, 28, 1, 1), (256, 14, 2, 2), (512, 7, 3, 3))
LAYER = pytest.mark.parametrize(
    "layer",
    [
        pytest.param(
            layer, id="-".join(map(str, layer)), marks=[pytest.mark.slow] if number else []
        )
        for number, layer in enumerate(LAYERS)
    ],
)


def network(channels: int, size: int, activation_bits: int, weight_bits: int) -> Model:
    """A 3x3 layer with its thresholds, and a reader."""
    net = Net((1, channels, size, size))
    encoding = "bipolar" if weight_bits == 1 else "signed"
    x = net.quant(net.x, "a", activation_bits, 0.5)
    y = net.batch_norm(net.conv(x, "c", channels, 3, 1, weight_bits, encoding), "bn", 8.0)
    y = net.quant(y, "b", activation_bits, 0.5)
    return net.model(net.conv(y, "d", 32))


def popcount_loops(
    layer: tuple[int, int, int, int], hardware: Hardware, mnemonic: str
) -> list[list[str]]:
    """The innermost loops of the first convolution's kernel that count bits."""
    kernels = lowered(pack(network(*layer), hardware, BIT), hardware)
    kernel = kernels["qnn_bitserial_conv2d"]
    own = listing(kernel.function, hardware)
    # The halo may be filled by the memory functions; nothing else is called but what counts.
    called = {line.split()[1].removesuffix("@PLT") for line in calls(own)}
    assert called <= {"memset", *(helper.symbol for helper in kernel.helpers)}
    apart = [listing(helper.function, hardware) for helper in kernel.helpers]
    assert not any(map(calls, apart))
    (lines,) = apart or [own]
    loops = [loop for loop in innermost_loops(lines) if count(loop, mnemonic)]
    assert loops
    return loops


@LAYER
def test_inner_loops_count_words_in_registers(layer: tuple[int, int, int, int]) -> None:
    for loop in popcount_loops(layer, AVX512VPOPCNTDQ, "vpopcntd"):
        assert not stack_accesses(loop)
        # xor or and, count, add per operand; loads are part of others or shared by the tile.
        assert len(loop) <= 5 * count(loop, "vpopcntd")


@LAYER
@pytest.mark.parametrize(
    ("hardware", "mnemonic"), ((AARCH64, "cnt"), (ARMV7, "vcnt.8")), ids=("rpi3", "rpi3_armv7")
)
def test_inner_loops_count_bytes_in_registers(
    layer: tuple[int, int, int, int], hardware: Hardware, mnemonic: str
) -> None:
    for loop in popcount_loops(layer, hardware, mnemonic):
        assert not stack_accesses(loop), f"{len(stack_accesses(loop))} of {len(loop)}"


def test_loops_over_products_of_tiles_use_the_unit_of_floats() -> None:
    """Thresholds do not, and tiles take longer to be stored then."""
    kernels = lowered(pack(network(256, 14, 2, 2), AMX, MAC), AMX)
    lines = listing(kernels["qnn_conv2d"].function, AMX)
    loops = [loop for loop in innermost_loops(lines) if count(loop, "tdpbusd")]
    assert loops
    assert all(count(loop, "vaddss") for loop in loops)


def test_half_of_the_sums_are_stored_among_the_products_of_the_next_tile() -> None:
    kernels = lowered(pack(network(256, 14, 2, 2), AMX, MAC), AMX)
    lines = listing(kernels["qnn_conv2d"].function, AMX)
    tiles = [line.split() for line in lines if re.match(r"\s+(tdpbusd|tilestored)\s", line)]
    sums = [words[1].rstrip(",") if words[0] == "tilestored" else words[-1] for words in tiles]
    stored = [at for at, words in enumerate(tiles) if words[0] == "tilestored"]
    early = [at for at in stored if sums[at] in ("%tmm0", "%tmm1")]
    late = [at for at in stored if sums[at] in ("%tmm2", "%tmm3")]
    assert early and late
    assert any(sums[at - 1] == "%tmm1" and tiles[at - 1][0] == "tdpbusd" for at in late)


@pytest.mark.slow
@pytest.mark.parametrize("hardware", (AARCH64, ARMV7), ids=lambda item: item.name)
def test_the_code_of_a_whole_network_is_small(hardware: Hardware) -> None:
    """ResNet-18 with its 24 kernels: less than 256 KiB of code and tables beside the weights."""
    elffile = pytest.importorskip("elftools.elf.elffile", reason="needs the extra 'emulator'")
    precisions = quantization(2, "unipolar"), quantization(1, "bipolar")
    zoo = ZooOptions(name="resnet18", activations=precisions[0], weights=precisions[1])
    model = importing.run(source=build(options=zoo), options=ImportOptions())
    program = compile_program(pack(model, hardware), hardware)
    sizes = [
        section["sh_size"]
        for data in program.objects.values()
        for section in elffile.ELFFile(BytesIO(data)).iter_sections()
        if section.name.startswith((".text", ".rodata"))
    ]
    assert len(program.objects) > 20
    assert sum(sizes) < 256 * 1024
