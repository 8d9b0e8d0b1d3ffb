"""What processors are called, by what real systems tell of them."""

from __future__ import annotations

import pytest

from pipelines.machine import processor_of


def cores(*parts: str, revision: int = 4, head: str = "") -> str:
    """`/proc/cpuinfo` of ARM cores, the rest of it as on a Raspberry Pi."""
    return "".join(
        f"processor\t: {number}\n{head}BogoMIPS\t: 38.40\n"
        "Features\t: fp asimd evtstrm crc32 cpuid\nCPU implementer\t: 0x41\n"
        "CPU architecture: 8\nCPU variant\t: 0x0\n"
        f"CPU part\t: {part}\nCPU revision\t: {revision}\n\n"
        for number, part in enumerate(parts)
    )


PI_3 = "Raspberry Pi 3 Model B Rev 1.2"
OLD = "model name\t: ARMv7 Processor rev 4 (v7l)\n"
"""What 32-bit systems say of every Pi from 2 to 4."""
FOOT = f"Hardware\t: BCM2835\nRevision\t: a02082\nSerial\t\t: 00000000abcdef01\nModel\t\t: {PI_3}\n"
XEON = (
    "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 85\n"
    "model name\t: Intel(R) Xeon(R) CPU @ 2.50GHz\n\n"
)


@pytest.mark.parametrize(
    ("cpuinfo", "board", "name"),
    [
        (cores(*["0xd03"] * 4), f"{PI_3}\0", f"0x41 0xd03 r0p4, {PI_3}"),
        (cores(*["0xd03"] * 4) + FOOT, "", f"0x41 0xd03 r0p4, {PI_3}"),
        (cores(*["0xd03"] * 4, head=OLD) + FOOT, f"{PI_3}\0", f"0x41 0xd03 r0p4, {PI_3}"),
        (
            cores(*["0xd08"] * 4, revision=3),
            "Raspberry Pi 4 Model B Rev 1.4\0",
            "0x41 0xd08 r0p3, Raspberry Pi 4 Model B Rev 1.4",
        ),
        # Two kinds of cores on one chip.
        (
            cores("0xd05", "0xd05", "0xd0b", revision=0),
            "Radxa ROCK 5B\0",
            "0x41 0xd05 r0p0, 0x41 0xd0b r0p0, Radxa ROCK 5B",
        ),
        # A server has no device tree.
        (
            cores("0xd0c", revision=1).replace("variant\t: 0x0", "variant\t: 0x3"),
            "",
            "0x41 0xd0c r3p1",
        ),
        (XEON * 2, "", "Intel(R) Xeon(R) CPU @ 2.50GHz"),
        ("", "", ""),
        ("nonsense", "", ""),
    ],
)
def test_what_a_processor_is_called(cpuinfo: str, board: str, name: str) -> None:
    assert processor_of(cpuinfo, board) == name


def test_boards_do_not_mix() -> None:
    """The keys of trials differ where part, revision or board do."""
    names = {
        processor_of(cores(part, revision=revision, head=OLD), board)
        for part in ("0xd03", "0xd08")
        for revision in (3, 4)
        for board in (PI_3, "Raspberry Pi Zero 2 W Rev 1.0")
    }
    assert len(names) == 8
