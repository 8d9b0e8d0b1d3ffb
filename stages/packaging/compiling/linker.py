"""Compiles the runtime and the graph, and links packages for any target with one C compiler."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path

from hw.profile import Hardware
from stages.errors import StageError
from stages.packaging.c_source.graph_source import PUBLIC
from stages.packaging.c_source.layer_timer import PUBLIC as PUBLIC_TIMES
from stages.packaging.compiling.object_file import ObjectFile
from stages.packaging.program.packed_constants import CONSTANTS, constants_source

RUNTIME_SOURCES = (
    *("pool.c", "processor.c", "tiles.c", "memory.c", "rounding.c", "conversions.c", "error.c"),
)
RUNTIME_HEADERS = ("runtime.h", "package.h")
REPLAY_SOURCE = "replay.c"
PROFILE_SOURCE, PROFILE_HEADER = "profile.c", "profile.h"
TRACE_SOURCE, TRACE_HEADER = "trace.c", "trace.h"
"""What tells layer times: in the library, and in the program that replays."""

_COMPILE = (
    *("-std=gnu11", "-O2", "-g0", "-fPIC", "-fvisibility=hidden"),
    *("-fno-sanitize=all", "-fno-stack-protector"),
    *("-fno-unwind-tables", "-fno-asynchronous-unwind-tables"),
    *("-ffunction-sections", "-fdata-sections", "-Wall", "-Wextra", "-Werror"),
)
_FUNCTIONS = {*PUBLIC, *PUBLIC_TIMES}
_LINK = ("-Wl,--build-id=none", "-Wl,--gc-sections", "-s")

# What an object may leave to libc, and (a pattern) to the compiler's own support library.
_LIBC = re.compile(
    r"pthread_(create|join|mutex_(init|destroy|lock|unlock)|cond_(init|destroy|wait|broadcast))"
    r"|clock_gettime|getpid|mmap|munmap|madvise|getauxval|_GLOBAL_OFFSET_TABLE_"
)
_COMPILER_RT = re.compile(
    r"__aeabi_(u?idiv(mod)?|u?ldivmod|l(mul|lsl|lsr|asr)|u?l2[fd]|[fd]2u?lz|f2h|h2f|d2h)"
    r"|__u?(div|mod)(di|ti)3|__u?divmoddi4|__(trunc[sd]fhf2|extendhfsf2|gnu_[fh]2[fh]_ieee)"
)


def default_cache() -> Path:
    """Return where the C compiler keeps what it builds once per target, such as libc stubs."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    root = Path(base) if Path(base).is_absolute() else Path.home() / ".cache"
    return root / "bitkiln" / "zig"


@dataclass(frozen=True)
class Names:
    """What the symbols of one package are called in it."""

    package: str
    defined: frozenset[str]
    """The symbols that it defines, by their own names."""

    def of(self, symbol: str) -> str:
        """The name of a symbol of the package; others keep theirs."""
        function = symbol.removeprefix("package_")
        if symbol == f"package_{function}" and function in _FUNCTIONS:
            return f"{self.package}_{function}"
        # Two underscores cannot occur in a package's name, so no prefix begins another.
        return f"{self.package}__{symbol}" if symbol in self.defined else symbol

    def of_reference(self, symbol: str) -> str:
        """The name of a symbol in code that calls libc, too, which has functions named like some of
        the package: only `package_` and `graph_` mean the package."""
        return self.of(symbol) if symbol.startswith(("package_", "graph_")) else symbol

    def is_public(self, name: str) -> bool:
        """Whether users see a symbol, by its name in the package."""
        return name in {f"{self.package}_{function}" for function in _FUNCTIONS}


@dataclass(frozen=True)
class Compiled:
    """What an object was made of."""

    sources: tuple[str, ...]
    flags: tuple[str, ...]
    """Flags that not every object has."""


@dataclass(frozen=True)
class Linker:
    """The C compiler working in one build folder, for one target and one package name."""

    folder: Path
    name: str
    hardware: Hardware
    cache: Path
    compiled: dict[str, Compiled] = field(default_factory=dict)
    """Objects by file name."""

    def compile_package(self, sources: Mapping[str, str | bytes], profile: bool = False) -> Path:
        """Compile runtime and graph into one object; `sources` are graph.c and what it needs."""
        runtime = (*RUNTIME_SOURCES, *([PROFILE_SOURCE] if profile else []))
        self._unpack((*runtime, *RUNTIME_HEADERS, *([PROFILE_HEADER] if profile else [])))
        for name, content in sources.items():
            data = content.encode() if isinstance(content, str) else content
            (self.folder / name).write_bytes(data)
        compiled = [name for name in sources if name.endswith((".c", ".S"))]
        # -fno-builtin: a loop in memory.c must not become a call of the function it is in.
        return self._compile("package.o", (*runtime, *compiled), "-fno-builtin")

    def compile_constants(self, chunks: Iterable[bytes]) -> str:
        """Compile the constants into an object of their own, which has its last names; return that.

        Nothing of it is read back: constants are most of a package.
        """
        self.write_constants(chunks)
        symbol, name = f"{self.name}__{CONSTANTS}", f"{self.name}_constants.o"
        (self.folder / "constants.S").write_text(constants_source(self.hardware, symbol))
        self._compile(name, ("constants.S",))
        return name

    def write_constants(self, chunks: Iterable[bytes]) -> Path:
        """Write all constants to one file."""
        path = self.folder / "constants.bin"
        with path.open("wb") as file:
            file.writelines(chunks)
        return path

    def compile_replay(self, profile: bool = False) -> Path:
        """Compile the program that replays golden vectors, and tells layer times if `profile`."""
        self._unpack((REPLAY_SOURCE, *RUNTIME_HEADERS))
        if not profile:
            return self._compile("replay.o", (REPLAY_SOURCE,))
        self._unpack((TRACE_SOURCE, TRACE_HEADER, PROFILE_HEADER))
        return self._compile("replay.o", (REPLAY_SOURCE, TRACE_SOURCE), "-DPROFILE")

    def assemble_kernels(self, texts: Mapping[str, str]) -> bytes:
        """Return one object of kernels that are given as assembly, by file name."""
        for name, text in texts.items():
            (self.folder / name).write_text(text)
        # Without -g0 Zig has debug information made of assembly, which names the folder.
        self._cc("-c", "-g0", *texts, "-o", "kernels.o")
        return (self.folder / "kernels.o").read_bytes()

    def names(self, objects: Mapping[str, bytes]) -> Names:
        """Return what the symbols of a package are called; StageError if it lacks any.

        `objects` define the package and go into every format.
        """
        parsed = [ObjectFile(data, name) for name, data in objects.items()]
        defined = _defined(parsed) | {CONSTANTS}
        _check_undefined(parsed, defined)
        return Names(self.name, frozenset(defined))

    def privatize(
        self, objects: Mapping[str, bytes], extra: Mapping[str, bytes], names: Names
    ) -> list[str]:
        """Write objects with prefixed names, hidden unless public; return the file names.

        `extra` (the replay program) refers to `objects` and keeps what it takes from libc.
        """
        parsed = [ObjectFile(data, name) for name, data in objects.items()]
        renamed = [(item.name, item.renamed(names.of, names.is_public)) for item in parsed]
        for name, data in extra.items():
            program = ObjectFile(data, name)
            renamed.append((name, program.renamed(names.of_reference, lambda _: True)))
        for name, data in renamed:
            (self.folder / f"{self.name}_{name}").write_bytes(data)
        return [f"{self.name}_{name}" for name, _ in renamed]

    def shared(self, objects: Sequence[str]) -> Path:
        """Link libNAME.so, which imports nothing but libc's threads."""
        out = f"lib{self.name}.so"
        soname = f"-Wl,-soname,{out}"
        self._cc("-shared", "-nostartfiles", soname, *_LINK, *objects, "-lpthread", "-o", out)
        return self.folder / out

    def static(self, objects: Sequence[str]) -> Path:
        """Archive libNAME.a."""
        out = f"lib{self.name}.a"
        self._zig("ar", "rcsD", out, *objects)
        return self.folder / out

    def executable(self, objects: Sequence[str]) -> Path:
        """Link the replay program NAME against the target's libc."""
        self._cc(*_LINK, *objects, "-lpthread", "-o", self.name)
        return self.folder / self.name

    def _unpack(self, names: Iterable[str]) -> None:
        runtime = files("stages.packaging").joinpath("runtime")
        for name in names:
            (self.folder / name).write_bytes(runtime.joinpath(name).read_bytes())

    def _compile(self, out: str, sources: Iterable[str], *flags: str) -> Path:
        self.compiled[out] = Compiled(tuple(sources), flags)
        outline = ("-mno-outline-atomics",) if self.hardware.architecture == "aarch64" else ()
        self._cc("-c", *_COMPILE, *outline, *flags, *self.compiled[out].sources, "-o", out)
        return self.folder / out

    def _cc(self, *arguments: str) -> None:
        target = ("-target", self.hardware.zig_target, f"-mcpu={self.hardware.zig_cpu}")
        self._zig("cc", *target, *arguments)

    def _zig(self, *arguments: str) -> None:
        zig(self.folder, self.cache, *arguments)


def zig(folder: Path, cache: Path, *arguments: str) -> None:
    """Run the C compiler in a folder."""
    command = [sys.executable, "-m", "ziglang", *arguments]
    environment = {
        "HOME": os.environ.get("HOME", ""),
        "PATH": os.environ.get("PATH", ""),
        "ZIG_GLOBAL_CACHE_DIR": str(cache),
        # Objects of this one build; they go with the build folder.
        "ZIG_LOCAL_CACHE_DIR": str(folder / "zig-cache"),
    }
    cache.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode == 0:
        return
    if "No module named ziglang" in done.stderr:
        raise StageError("no C compiler", hint="install the package ziglang into this Python")
    raise StageError(
        f"the C compiler failed: zig {' '.join(arguments)}\n{done.stderr.strip()[-2000:]}"
    )


def _defined(objects: Iterable[ObjectFile]) -> set[str]:
    """Return all defined names; every compiled kernel brings weak helpers that others bring too."""
    owners: dict[str, str] = {}
    weak: set[str] = set()
    for item in objects:
        for symbol in item.symbols:
            if not symbol.is_defined:
                continue
            if symbol.is_weak:
                weak.add(symbol.name)
            elif symbol.name in owners:
                raise StageError(f"{owners[symbol.name]} and {item.name} both define {symbol.name}")
            else:
                owners[symbol.name] = item.name
    return weak | owners.keys()


def _check_undefined(objects: Iterable[ObjectFile], known: set[str]) -> None:
    for item in objects:
        for symbol in item.symbols:
            if symbol.is_defined or symbol.name in known:
                continue
            if _LIBC.fullmatch(symbol.name) or _COMPILER_RT.fullmatch(symbol.name):
                continue
            raise StageError(
                f"{item.name} refers to {symbol.name}, which neither the kernels nor the "
                "package's runtime define"
            )
