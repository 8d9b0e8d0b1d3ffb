"""Kernels as assembly: the code of LLVM's own objects, whatever assembler translates it."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from functools import cache
from io import BytesIO
from pathlib import Path

import pytest

from hw.profile import Hardware
from stages.packaging.compiling.assembly import assembler_architecture, renamed, tidied
from stages.packaging.compiling.linker import Linker, default_cache
from tests.comparing.instructions import split
from tests.stages.packaging.kernel_cases import CASES
from tests.stages.packaging.level_net import BIT
from tests.stages.packaging.programs import compile_at_once, compile_program, pack
from tests.targets import AARCH64, AMX_GFNI, ARMV7, AVXVNNI, DOTPROD, I8MM, SSE2

elffile = pytest.importorskip("elftools.elf.elffile", reason="needs the extra 'emulator'")

GNU = {
    "x86_64": "x86_64-linux-gnu-as",
    "aarch64": "aarch64-linux-gnu-as",
    "armv7": "arm-linux-gnueabihf-as",
}
_NO_OP = re.compile(rb"[\x66\x2e]*(\x90|\x0f\x1f.*)", re.DOTALL)

MODULE = """\
	.file	"TVMMod"
	.section	.rodata.cst4,"aM",@progbits,4
	.p2align	2, 0x0
.LCPI0_0:
	.long	0x437f0000
	.section	.rodata.cst8,"aM",@progbits,8
.LCPI1_0:
	.quad	1
	.text
	.globl	kernel
	.type	kernel,@function
kernel:
.Lfunc_begin0:
	.file	1 "." "IRModule.CodeGenLLVM"
	.loc	1 0 0 prologue_end
	.cfi_startproc
	vbroadcastss	.LCPI0_0(%rip), %ymm3
.Ltmp0:
	callq	memset@PLT
.LBB0_1:
	jne	.LBB0_1
	callq	sums_1@PLT
	retq
.Lfunc_end0:
	.size	kernel, .Lfunc_end0-kernel
	.cfi_endproc
	.section	.text.tvm.fp16.conv,"ax",@progbits
	.weak	__truncsfhf2
	.type	__truncsfhf2,@function
__truncsfhf2:
	movq	.LCPI1_0(%rip), %xmm0
	retq
.Lfunc_end1:
	.size	__truncsfhf2, .Lfunc_end1-__truncsfhf2
	.section	.debug_info,"",@progbits
	.long	.Lfunc_begin0
	.section	".note.GNU-stack","",@progbits
	.section	.debug_line,"",@progbits
"""
TIDIED = """\
	.section	.rodata.cst4,"aM",@progbits,4
	.p2align	2, 0x0
.LCPI0_0:
	.long	0x437f0000
	.text
	.globl	kernel
	.type	kernel,@function
kernel:
	vbroadcastss	.LCPI0_0(%rip), %ymm3
	callq	memset@PLT
.LBB0_1:
	jne	.LBB0_1
	callq	sums_1@PLT
	retq
.Lfunc_end0:
	.size	kernel, .Lfunc_end0-kernel
	.section	".note.GNU-stack","",@progbits
"""


def test_debugging_and_helpers_that_nobody_calls_are_left_out() -> None:
    assert tidied(MODULE) == TIDIED


def test_a_helper_that_is_called_stays_with_its_constants() -> None:
    called = MODULE.replace("sums_1", "__truncsfhf2")
    assert ".LCPI1_0:" in tidied(called) and "\t.weak\t__truncsfhf2" in tidied(called)


def test_own_symbols_are_renamed_and_hidden_and_no_others() -> None:
    own = {"kernel": "net__kernel", "memset": "net__memset"}
    text = renamed(TIDIED, lambda name: own.get(name, name))
    assert "\t.globl\tnet__kernel\n\t.hidden\tnet__kernel\n" in text
    assert "\tcallq\tnet__memset@PLT\n" in text and "\tcallq\tsums_1@PLT\n" in text
    assert "\t.size\tnet__kernel, .Lfunc_end0-net__kernel\n" in text
    assert not re.search(r"(?<!__)\b(kernel|memset)\b", text)


def test_an_architecture_is_named_where_assemblers_need_one() -> None:
    assert [assembler_architecture(each) for each in (SSE2, ARMV7, AARCH64, DOTPROD, I8MM)] == [
        *("", "", "armv8-a", "armv8.2-a+dotprod+fp16", "armv8.2-a+dotprod+fp16+i8mm"),
    ]


@cache
def compiled(hardware: Hardware) -> tuple[Mapping[str, bytes], Mapping[str, str]]:
    """Kernels of a small network as objects and as text."""
    packed = pack(CASES["residual_a2w1"]().model, hardware)
    text = compile_program(packed, hardware, as_text=True)
    return compile_program(packed, hardware).objects, text.texts


@pytest.mark.parametrize("assembler", ["llvm", "gnu"])
@pytest.mark.parametrize("hardware", (AVXVNNI, AMX_GFNI, I8MM, ARMV7), ids=lambda item: item.name)
def test_assembled_it_is_the_code_of_llvm_s_objects(
    hardware: Hardware, assembler: str, tmp_path: Path
) -> None:
    objects, texts = compiled(hardware)
    assert {f"{symbol}.o" for symbol in texts} == set(objects)
    if assembler == "llvm":
        linker = Linker(tmp_path, "net", hardware, default_cache())
        found = linker.assemble_kernels({f"{name}.s": text for name, text in texts.items()})
    else:
        found = _by_gnu(hardware, texts, tmp_path)
    for symbol in texts:
        wanted = _code(objects[f"{symbol}.o"], symbol, hardware)
        assert _code(found, symbol, hardware) == wanted, symbol


def _by_gnu(hardware: Hardware, texts: Mapping[str, str], folder: Path) -> bytes:
    """One object by GNU as: a text has local names of its own, so each becomes one first."""
    tool = shutil.which(GNU[hardware.architecture])
    if tool is None:
        pytest.skip(f"{GNU[hardware.architecture]} is not installed")
    for name, text in texts.items():
        (folder / f"{name}.s").write_text(text)
        subprocess.run([tool, f"{name}.s", "-o", f"{name}.o"], cwd=folder, check=True)
    linker = tool.removesuffix("as") + "ld"
    parts = [f"{name}.o" for name in texts]
    subprocess.run([linker, "-r", *parts, "-o", "all.o"], cwd=folder, check=True)
    return (folder / "all.o").read_bytes()


def _code(data: bytes, symbol: str, hardware: Hardware) -> list[bytes] | bytes:
    """A function's bytes; on x86-64 its instructions, but for what fills space before loops."""
    elf = elffile.ELFFile(BytesIO(data))
    (entry,) = elf.get_section_by_name(".symtab").get_symbol_by_name(symbol)
    section = elf.get_section(entry["st_shndx"])
    start = entry["st_value"]
    code: bytes = section.data()[start : start + entry["st_size"]]
    assert code
    if hardware.architecture != "x86_64":
        return code
    return [part for part in split("x86_64", code) if not _NO_OP.fullmatch(part)]


def test_it_is_written_alike_every_time() -> None:
    packed = pack(CASES["residual_a2w1"]().model, AARCH64, BIT)
    first = compile_program(packed, AARCH64, as_text=True).texts
    assert compile_program(packed, AARCH64, compile_at_once, as_text=True).texts == first
    assert not any("/tmp" in text or str(Path.cwd()) in text for text in first.values())
