"""Writes a package as text: C, kernels as assembly, constants, and a Makefile that builds all."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable
from pathlib import Path

from stages.packaging.c_source.kernel_calls import comment
from stages.packaging.compiling.assembly import assembler_architecture, renamed
from stages.packaging.compiling.linker import Linker, Names
from stages.packaging.program.kernel_program import Program
from stages.packaging.program.packed_constants import CONSTANTS, constants_source

FOLDER = "source"
"""Where in a package all of this is."""

GRAPH = "graph.c"
"""What defines the functions that users see."""

FLAGS = (
    *("-std=gnu11", "-fPIC", "-fvisibility=hidden", "-ffunction-sections", "-fdata-sections"),
    # No function of the runtime may become a call of libc's function of the same name.
    *("-fno-builtin", "-fno-fast-math"),
    *("-fno-stack-protector", "-fno-unwind-tables", "-fno-asynchronous-unwind-tables"),
)
"""What the C around the kernels needs of any compiler."""
LINKED = ("-Wl,--gc-sections", "-s")

_IDENTIFIER = re.compile(r"\b[A-Za-z_]\w*")
_PART = re.compile(
    r"""/\*.*?\*/|//[^\n]*|(?P<text>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')|\b[A-Za-z_]\w*""",
    re.DOTALL,
)
"""A comment, a text or a character, or an identifier of C."""
_DEFINED = re.compile(r"^\w[\w *]*?\b(\w+)\(", re.MULTILINE)
"""The beginning of a function's definition, or of its declaration."""
_VISIBLE = '__attribute__((visibility("default")))'
_ASKED = "$(shell $(CC) {flag} -x c -E /dev/null >/dev/null 2>&1 && echo {flag})"
"""A flag of a compiler that knows it."""
_LICENCE = "/* SPDX-License-Identifier: Apache-2.0 */\n"

_MAKEFILE = """\
# {name}: a compiled neural network for {target}, as C and assembly.
# Generated; do not edit.
#
#     make                     lib{name}.so, lib{name}.a and {name}
#     make check               {name} replays the golden vectors and prints the latency
#     make CC=some-other-gcc   any C compiler with GNU C and an assembler; GCC and Clang were tried
#     make OUT=folder          where results go; in the folder above, {name} finds golden.bin
#
# {name}.h is the interface. A program of yours needs it and one library:
#
#     cc yours.c lib{name}.a -pthread
#
# kernels/*.s is the code that was proved and tested: assemblers only translate it, so any compiler
# gives kernels of the same speed. graph.c calls them in order, the other C files are the runtime:
# threads, the check of the processor, and what kernels would else take from libc. constants.bin
# holds weights. All symbols begin with {name}_; only those in {name}.h are visible.
#
# Licences: NOTICE in the folder above. This needs GNU make.

CFLAGS = -O2
OUT = .
GOLDEN = ../golden.bin
AR = $(or $(shell $(CC) -print-prog-name=ar 2>/dev/null),ar)

FLAGS := {flags}
ASFLAGS :={assembling}
RUNTIME = {runtime}
PROGRAM = {program}
KERNELS = $(sort $(wildcard kernels/*.s))

OBJECTS = $(patsubst %,$(OUT)/objects/%.o,$(RUNTIME) graph.c $(KERNELS) constants.s)
REPLAY = $(patsubst %,$(OUT)/objects/%.o,$(PROGRAM))
LIBRARIES = $(OUT)/lib{name}.so $(OUT)/lib{name}.a

all: $(LIBRARIES) $(OUT)/{name}
{defined}
$(OUT)/lib{name}.so: $(OBJECTS)
\t$(CC) -shared -nostartfiles -Wl,-soname,lib{name}.so {linked} $(LDFLAGS) $^ -pthread -o $@

$(OUT)/lib{name}.a: $(OBJECTS)
\trm -f $@
\t$(AR) rcs $@ $^

$(OUT)/{name}: $(OBJECTS) $(REPLAY)
\t$(CC) {linked} $(LDFLAGS) $^ -pthread -o $@

$(OUT)/objects/%.c.o: %.c {headers}
\t@mkdir -p $(@D)
\t$(CC) $(CPPFLAGS) $(CFLAGS) $(FLAGS) -c $< -o $@

$(OUT)/objects/%.s.o: %.s
\t@mkdir -p $(@D)
\t$(CC) $(ASFLAGS) -c $< -o $@

$(OUT)/objects/constants.s.o: constants.bin

check: $(OUT)/{name}
\t$(RUN) $(OUT)/{name} $(GOLDEN)

clean:
\trm -rf $(OUT)/objects $(LIBRARIES) $(OUT)/{name}

.PHONY: all check clean
"""


def source(linker: Linker, names: Names, program: Program) -> dict[str, str]:
    """The texts below FOLDER, by path, of what the linker has compiled already: all but the header
    and constants.bin."""
    library, replay = linker.compiled["package.o"], linker.compiled["replay.o"]
    headers = sorted(path.name for path in linker.folder.glob("*.h"))
    texts = {file: _c(linker.folder / file, names.of) for file in (*library.sources, *headers)} | {
        file: _c(linker.folder / file, names.of_reference) for file in replay.sources
    }
    texts[GRAPH] = _DEFINED.sub(
        lambda match: f"{_VISIBLE}\n{match[0]}" if names.is_public(match[1]) else match[0],
        texts[GRAPH],
    )
    for symbol, text in program.texts.items():
        texts[f"kernels/{symbol}.s"] = _layers(symbol, program) + renamed(text, names.of)
    texts["constants.s"] = constants_source(linker.hardware, names.of(CONSTANTS))
    runtime = [file for file in library.sources if file != GRAPH]
    defined = [flag for flag in replay.flags if flag.startswith("-D")]
    flags, assembling = " ".join(FLAGS), ""
    if architecture := assembler_architecture(linker.hardware):
        # Without it GCC calls functions for atomics, which older ones do not, and do not know it.
        flags += " " + _ASKED.format(flag="-mno-outline-atomics")
        # Clang 14 does not heed what stands in the text.
        assembling = " " + _ASKED.format(flag=f"-march={architecture}")
    texts["Makefile"] = _MAKEFILE.format(
        name=linker.name,
        target=f"{linker.hardware.architecture} ({linker.hardware.cpu})",
        flags=flags,
        assembling=assembling,
        runtime=" ".join(runtime),
        program=" ".join(replay.sources),
        defined=f"$(REPLAY): FLAGS += {' '.join(defined)}\n" if defined else "",
        headers=" ".join(headers),
        linked=" ".join(LINKED),
    )
    return {f"{FOLDER}/{file}": text for file, text in sorted(texts.items())}


def _c(path: Path, rename: Callable[[str], str]) -> str:
    """A C file with the package's own names, in comments too; texts are left as they are."""

    def part(match: re.Match[str]) -> str:
        if match["text"]:
            return match[0]
        return _IDENTIFIER.sub(lambda name: rename(name[0]), match[0])

    return _LICENCE + _PART.sub(part, path.read_text())


def _layers(symbol: str, program: Program) -> str:
    """What a kernel is for, as a comment."""
    symbols = ((c.layer, c.symbol, c.fallback.symbol if c.fallback else "") for c in program.calls)
    layers = dict.fromkeys(layer for layer, *of in symbols if symbol in of)
    what = f"Layers: {comment(', '.join(layers))}" if layers else "Called by other kernels"
    return textwrap.fill(f"/* {what} */", 98, subsequent_indent=" * ") + "\n"
