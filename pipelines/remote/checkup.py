"""What keeps a board from being used, and what makes the times of it worth little.

Bits of `get_throttled`: Raspberry Pi documentation, 'vcgencmd'. Temperatures: the same, 'Frequency
management and thermal control': from 80 degrees on the firmware lowers the clock.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hw import host
from hw.isa.tile_registers import FEATURES as TILES
from hw.profile import Hardware
from pipelines import machine
from pipelines.errors import UserError, cut
from pipelines.output.findings import Finding
from pipelines.remote import board_programs, facts
from pipelines.remote.facts import Facts
from pipelines.remote.ssh_errors import CONNECTION, refusal
from pipelines.remote.transport import FOLDER, Transport, UnreachableBoardError
from pipelines.runners.replay import qemu_lacks

HOT, WARM = 80.0, 70.0
"""Degrees Celsius at which the clock is lowered, and at which a run may well get there."""
_BITS = (
    "its voltage {} too low",
    "its clock {} capped",
    "it {} throttled",
    "it {} at its soft temperature limit",
)
"""From bit 0 on, of now; what was since the board started stands 16 bits higher."""
_SINCE = 16
MOST_LOAD = 0.5
"""Programs at work, on average of a minute, besides ours."""
_FULL = 0.95
"""The part of its highest clock at which a core counts as running at it."""
LEAST_DISK_MIB, LEAST_MEMORY_MIB = 64, 64
"""What a runner with its library and tensors takes at least; an assumption."""
_GOVERNOR = "echo performance | sudo tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor"
_LONGEST = 120


def examine(to: Transport, hardware: Hardware | None) -> list[Finding]:
    """Return the findings of one board; `hardware` is what packages for it are built for."""
    try:
        told = facts.ask(to)
    except UnreachableBoardError as error:
        return [refusal(to, error.message)]
    except UserError as error:
        return [Finding(CONNECTION, "fault", error.message)]
    if isinstance(told, str):
        said = f"'{cut(told, _LONGEST)}'" if told else "nothing"
        advice = "a shell of POSIX must answer there; what does `ssh … echo hello` print?"
        return [Finding(CONNECTION, "fault", f"answers {said} instead of facts", advice)]
    found = list(findings(told, hardware, is_local=to.board.is_local))
    return [*found, *_cores(told, to.board.cores)]


def findings(
    told: Facts, hardware: Hardware | None, *, is_local: bool = False
) -> Iterator[Finding]:
    """Yield what there is to say of a board."""
    yield _connection(told)
    yield _architecture(told, hardware, is_local)
    yield from _features(told, hardware)
    yield _libc(told)
    yield from _throttling(told)
    yield from _heat(told)
    yield from _clock(told)
    yield from _load(told)
    yield from _disk(told)
    yield from _memory(told)


def _connection(told: Facts) -> Finding:
    if told.noise:
        return Finding(
            CONNECTION,
            "fault",
            f"a start-up file of its shell prints '{cut(told.noise, _LONGEST)}' to programs too",
            "let it print only where there is a terminal: [ -t 1 ]",
        )
    named = machine.processor_of(told.cpuinfo, told.model) or told.model
    return Finding(CONNECTION, "ok", f"answers: {cut(named, _LONGEST) or 'no name'}")


def _architecture(told: Facts, hardware: Hardware | None, is_local: bool) -> Finding:
    what, found = "system", told.architecture
    if not found:
        known = ", ".join(board_programs.ARCHITECTURES)
        said = f"its processor is called '{cut(told.machine, 50)}'"
        return Finding(what, "fault", said, f"accepted: {known}")
    is_mixed = told.bits == 32 and told.machine in ("aarch64", "arm64")
    said = "armv7: a 32-bit system on a 64-bit kernel" if is_mixed else found
    if hardware is None:
        advice = "build for it with hardware=rpi3_armv7, or install a 64-bit system"
        return Finding(what, "warning" if is_mixed else "ok", said, advice if is_mixed else "")
    if hardware.architecture == found:
        return Finding(what, "ok", f"{said}, as {hardware.name} is")
    if is_local and not machine.is_here(hardware.architecture):
        return _emulated(said, hardware)
    advice = (
        "install a 64-bit system, or build with hardware=rpi3_armv7"
        if is_mixed
        else f"name a board of hw/boards that is {found}: hardware=NAME"
    )
    return Finding(what, "fault", f"{said}, and {hardware.name} is {hardware.architecture}", advice)


def _emulated(said: str, hardware: Hardware) -> Finding:
    """Of this machine, which runs what is for others under QEMU."""
    under = f"{said}, and what is for {hardware.name} ({hardware.architecture}) runs under QEMU"
    if hardware.architecture == "x86_64":
        said = f"{said}, and {hardware.name} is {hardware.architecture}"
        return Finding("system", "fault", said, "take a board of that architecture")
    if lacking := qemu_lacks(hardware.architecture):
        return Finding("system", "fault", f"{under} alone", f"apt install {' '.join(lacking)}")
    return Finding("system", "warning", under, "its times mean nothing")


def _features(told: Facts, hardware: Hardware | None) -> Iterator[Finding]:
    """What of a profile the processor lacks; 32-bit systems do not tell in the same words."""
    if hardware is None or told.architecture != hardware.architecture or not told.cpuinfo:
        return
    if told.architecture == "armv7":
        return
    has = host.from_cpuinfo(told.cpuinfo, machine=told.machine).features
    lacking = sorted(set(hardware.features) - set(has) - set(TILES))
    if lacking:
        names = ", ".join(name.removeprefix("+") for name in lacking)
        said = f"its processor lacks {names}, which {hardware.name} has"
        yield Finding("processor", "fault", said, "name the board that it is: hardware=NAME")


def _libc(told: Facts) -> Finding:
    least = ".".join(map(str, board_programs.GLIBC))
    if told.glibc is not None and told.glibc >= board_programs.GLIBC:
        return Finding("C library", "ok", told.libc)
    named = cut(told.libc, 30)
    what = f"{named} is older than glibc {least}" if told.glibc else f"{named or 'unknown'}"
    what = what if told.glibc else f"{what}, not glibc"
    said = f"{what}: kernels are timed by a runner that is linked statically"
    return Finding("C library", "warning", said, f"packages need a system with glibc {least}")


def _throttling(told: Facts) -> Iterator[Finding]:
    if told.throttled is None:
        return
    now, past = (
        [text.format(verb) for bit, text in enumerate(_BITS) if bits >> bit & 1]
        for bits, verb in ((told.throttled, "is"), (told.throttled >> _SINCE, "was"))
    )
    supply = "use the supply and cable that Raspberry Pi names for it"
    cooler = "cool it, by a heat sink or a fan"
    if now:
        advice = supply if told.throttled & 1 else cooler
        yield Finding("throttling", "fault", f"now {' and '.join(now)}", advice)
    elif past:
        advice = supply if told.throttled >> _SINCE & 1 else cooler
        said = f"not now, but since it started {' and '.join(past)}"
        yield Finding("throttling", "warning", said, advice)
    else:
        yield Finding("throttling", "ok", "never since it started")


def _heat(told: Facts) -> Iterator[Finding]:
    if told.celsius is None:
        return
    said = f"{told.celsius:.1f} degrees Celsius"
    if told.celsius >= HOT:
        said += f", and from {HOT:.0f} on the clock is lowered"
        yield Finding("temperature", "fault", said, "let it cool, by a heat sink or a fan")
    elif told.celsius >= WARM:
        said += f", near the {HOT:.0f} at which the clock is lowered"
        yield Finding("temperature", "warning", said, "cool it, by a heat sink or a fan")
    else:
        yield Finding("temperature", "ok", said)


def _clock(told: Facts) -> Iterator[Finding]:
    """The governor, and the clock of the slowest core beside its highest."""
    if not told.governors:
        return
    others = {n: name for n, name in told.governors.items() if name != "performance"}
    both = [(told.clocks[n], most) for n, most in told.clocks_max.items() if n in told.clocks]
    now, most = min(both, default=(0, 0))
    said = f", {now / 1000:.0f} of {most / 1000:.0f} MHz" if both else ""
    if others:
        names = " and ".join(sorted({cut(name, 30) for name in others.values()}))
        cores = _ranges(sorted(others))
        yield Finding("clock", "warning", f"governor {names} on {cores}{said}", _GOVERNOR)
    elif now < _FULL * most:
        advice = "something lowers it: heat, the supply, or a limit in cpufreq/scaling_max_freq"
        yield Finding("clock", "warning", f"governor performance, and yet{said[1:]}", advice)
    else:
        yield Finding("clock", "ok", f"governor performance{said}")


def _ranges(numbers: Sequence[int]) -> str:
    """Numbers of processors, in order, as people write them: core 1, cores 0 to 3."""
    if len(numbers) == 1:
        return f"core {numbers[0]}"
    if numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"cores {numbers[0]} to {numbers[-1]}"
    return f"cores {', '.join(map(str, numbers[:20]))}"


def _cores(told: Facts, wanted: Sequence[int]) -> Iterator[Finding]:
    """Those that the boards file names, if some are not there."""
    if told.cpus is None or not (absent := [core for core in wanted if core >= told.cpus]):
        return
    names = ", ".join(map(str, absent))
    advice = f"correct cores in your boards file: 0 to {told.cpus - 1}"
    yield Finding("cores", "fault", f"it has no cores {names}, only {told.cpus}", advice)


def _load(told: Facts) -> Iterator[Finding]:
    if told.load is None:
        return
    on = f"on {told.cpus} core{'s' * (told.cpus != 1)}" if told.cpus else "on its cores"
    said = f"{told.load:.2f} programs at work {on}, on average of a minute"
    if told.load > MOST_LOAD:
        yield Finding("load", "warning", said, "end them, or wait: times are taken beside them")
    else:
        yield Finding("load", "ok", said)


def _disk(told: Facts) -> Iterator[Finding]:
    if not told.is_writable:
        advice = "is its file system read-only? what does `mount` say there?"
        yield Finding("disk", "fault", "nothing can be written to the home folder", advice)
        return
    free = {place: kib / 1024 for place, kib in told.disk_kib.items()}
    if "home" not in free:
        return
    said = f"{free['home']:.0f} MiB free in the home folder"
    said += f", {free['tmp']:.0f} in /tmp" if "tmp" in free else ""
    if free["home"] < LEAST_DISK_MIB:
        advice = f"have {LEAST_DISK_MIB} MiB there; what bitkiln keeps is in {FOLDER}"
        yield Finding("disk", "fault", said, advice)
    else:
        yield Finding("disk", "ok", said)


def _memory(told: Facts) -> Iterator[Finding]:
    if not {"total", "available"} <= told.memory_kib.keys():
        return
    total, free = (told.memory_kib[name] / 1024 for name in ("total", "available"))
    said = f"{free:.0f} of {total:.0f} MiB free"
    if free < LEAST_MEMORY_MIB:
        advice = f"end other programs: a runner takes {LEAST_MEMORY_MIB} MiB and more"
        yield Finding("memory", "fault", said, advice)
    else:
        yield Finding("memory", "ok", said)
