"""What a board says of itself: one script that its shell runs, and a reader that trusts nothing.

The script is constant and sent as input. It works under dash and BusyBox, changes nothing, and
prints a line a fact. What comes back is data: bounded in length, without control characters,
neither executed nor used as a path.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pipelines.errors import printable
from pipelines.remote.transport import Transport, script

BEGIN, END = "bitkiln facts", "bitkiln facts end"
SCRIPT = f"""\
root=''
PATH="$PATH:/usr/bin:/bin:/usr/sbin:/sbin:/opt/vc/bin"
LC_ALL=C
export PATH LC_ALL
# The first line of a file, where there is one: key, file.
fact() {{
    value=
    {{ IFS= read -r value <"$2"; }} 2>/dev/null
    [ -z "$value" ] || printf '%s %s\\n' "$1" "$value"
}}
room() {{
    # Fields of POSIX's df: system, size, used, available.
    set -- "$1" $(df -Pk "$2" 2>/dev/null | tail -n 1)
    [ -z "$5" ] || echo "disk $1 $5"
}}
echo '{BEGIN}'
echo "machine $(uname -m)"
bits=$(getconf LONG_BIT 2>/dev/null)
# The fifth byte of a program is 1 for 32 bits, 2 for 64.
[ -n "$bits" ] || case $(od -An -tu1 -j4 -N1 /proc/self/exe 2>/dev/null) in
    *1*) bits=32 ;;
    *2*) bits=64 ;;
esac
echo "bits $bits"
libc=$(getconf GNU_LIBC_VERSION 2>/dev/null)
[ -n "$libc" ] || ! ls "$root"/lib/ld-musl-* >/dev/null 2>&1 || libc=musl
echo "libc $libc"
head -c 32768 "$root/proc/cpuinfo" 2>/dev/null | sed 's/^/cpuinfo /'
echo "cpus $(grep -c '^processor' "$root/proc/cpuinfo" 2>/dev/null)"
model=$(head -c 200 "$root/proc/device-tree/model" 2>/dev/null | tr -d '\\000')
echo "model $model"
for cpu in "$root"/sys/devices/system/cpu/cpu[0-9]*; do
    number=${{cpu##*/cpu}}
    fact "governor $number" "$cpu/cpufreq/scaling_governor"
    fact "clock $number" "$cpu/cpufreq/scaling_cur_freq"
    fact "clock_max $number" "$cpu/cpufreq/cpuinfo_max_freq"
done
for zone in "$root"/sys/class/thermal/thermal_zone[0-9]*; do
    fact "heat ${{zone##*/thermal_zone}}" "$zone/temp"
done
throttled=$root/sys/devices/platform/soc/soc:firmware/get_throttled
if [ -r "$throttled" ]; then
    fact throttled "$throttled"
elif command -v vcgencmd >/dev/null 2>&1; then
    echo "throttled $(vcgencmd get_throttled 2>/dev/null | sed -n 's/^throttled=//p')"
fi
fact load "$root/proc/loadavg"
sed -n -e 's/^MemTotal: *\\([0-9]*\\) kB$/memory total \\1/p' \\
    -e 's/^MemAvailable: *\\([0-9]*\\) kB$/memory available \\1/p' "$root/proc/meminfo" 2>/dev/null
room home .
room tmp /tmp
[ -w . ] && echo 'home writable'
echo '{END}'
exit 0
"""
_LONGEST, _MOST_LINES, _LONGEST_LINE = 200_000, 4000, 4000
"""Characters and lines that are read of an answer, and characters of a line."""
_MACHINES = {"aarch64": "aarch64", "arm64": "aarch64", "x86_64": "x86_64"}


@dataclass(frozen=True)
class Facts:
    """A board as its own shell describes it; None or empty where it does not tell."""

    machine: str
    """What `uname -m` calls its processor."""
    bits: int | None
    """Of its programs; 64-bit kernels may run 32-bit ones."""
    libc: str
    """`glibc 2.36`, or `musl`."""
    cpuinfo: str
    model: str
    """Of the device tree."""
    cpus: int | None
    governors: Mapping[int, str]
    """Of each processor, by its number."""
    clocks: Mapping[int, int]
    """kHz now, by a processor's number."""
    clocks_max: Mapping[int, int]
    """kHz at most."""
    celsius: float | None
    """The hottest zone."""
    throttled: int | None
    """Bits of the Raspberry Pi's firmware."""
    load: float | None
    """Programs that ran or waited, on average of a minute."""
    disk_kib: Mapping[str, int]
    """Free, by place: home and tmp."""
    memory_kib: Mapping[str, int]
    """total and available."""
    is_writable: bool
    """Whether its home folder is."""
    noise: str = ""
    """What it printed before the facts: a start-up file of its shell does."""

    @property
    def architecture(self) -> str:
        """That of programs that run there, as boards name it; empty if none of ours do."""
        return architecture_of(self.machine, self.bits)

    @property
    def glibc(self) -> tuple[int, int] | None:
        """Its version, or None without glibc."""
        return glibc_of(self.libc)


def architecture_of(machine: str, bits: int | None) -> str:
    """Return the architecture of a system's programs from `uname -m` and their bits, or ""."""
    found = _MACHINES.get(machine, "")
    if machine.startswith(("armv7", "armv8")) or (found == "aarch64" and bits == 32):
        return "armv7"
    return "" if found == "x86_64" and bits == 32 else found


def glibc_of(text: str) -> tuple[int, int] | None:
    """Return the version in what `getconf GNU_LIBC_VERSION` prints, or None."""
    match = re.match(r"glibc ([0-9]{1,4})\.([0-9]{1,4})(?![0-9])", text)
    return (int(match[1]), int(match[2])) if match else None


def ask(to: Transport) -> Facts | str:
    """Return a board's facts, or what it answers instead.

    UnreachableBoardError if it cannot be asked.
    """
    return parse(script(to, SCRIPT))


def parse(text: str) -> Facts | str:
    """Return the facts in what a board printed, or the text itself, shortened, if it has none."""
    lines = [_printable(line) for line in text[:_LONGEST].splitlines()[:_MOST_LINES]]
    if BEGIN not in lines or END not in lines[lines.index(BEGIN) :]:
        return " ".join(filter(None, lines))[:_LONGEST_LINE]
    begin = lines.index(BEGIN)
    told = [line.partition(" ") for line in lines[begin : lines.index(END, begin)]]
    found: dict[str, list[str]] = {}
    for key, _, value in told:
        found.setdefault(key, []).append(value)
    one = {key: values[0].strip() for key, values in found.items()}
    heats = [value / 1000 for _, value in _pairs(found.get("heat", ()))]
    load = re.match(r"[0-9]{1,6}\.[0-9]{1,4}(?= )", one.get("load", ""))
    return Facts(
        machine=one.get("machine", ""),
        bits=_number(one.get("bits", "")),
        libc=one.get("libc", ""),
        cpuinfo="\n".join(found.get("cpuinfo", ())),
        model=one.get("model", ""),
        cpus=_number(one.get("cpus", "")),
        governors=_by_processor(found.get("governor", ())),
        clocks=_numbers(found.get("clock", ())),
        clocks_max=_numbers(found.get("clock_max", ())),
        # Zones without a sensor say 0 or nonsense.
        celsius=max((value for value in heats if 0 < value < 150), default=None),
        throttled=_bits(one.get("throttled", "")),
        load=float(load[0]) if load else None,
        disk_kib=dict(_pairs(found.get("disk", ()))),
        memory_kib=dict(_pairs(found.get("memory", ()))),
        is_writable="writable" in found.get("home", ()),
        noise=" ".join(filter(None, lines[:begin]))[:_LONGEST_LINE],
    )


def _printable(line: str) -> str:
    """A line without what a terminal would obey, cut to what a fact may take."""
    return printable(line)[:_LONGEST_LINE].rstrip()


def _number(text: str) -> int | None:
    return int(text) if re.fullmatch(r"[0-9]{1,15}", text) else None


def _bits(text: str) -> int | None:
    return int(text, 16) if re.fullmatch(r"(?:0x)?[0-9A-Fa-f]{1,8}", text) else None


def _pairs(values: Sequence[str]) -> Iterator[tuple[str, int]]:
    """Yield the names and numbers of facts that are both."""
    for value in values:
        name, _, text = value.partition(" ")
        if (number := _number(text)) is not None:
            yield name, number


def _numbers(values: Sequence[str]) -> dict[int, int]:
    """Numbers by a processor's number."""
    return {int(name): number for name, number in _pairs(values) if _number(name) is not None}


def _by_processor(values: Sequence[str]) -> dict[int, str]:
    pairs = (value.partition(" ") for value in values)
    return {int(name): text for name, _, text in pairs if _number(name) is not None and text}
