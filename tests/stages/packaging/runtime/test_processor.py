"""The features of a processor, as the C runtime asks for them."""

from __future__ import annotations

import ctypes
import platform
import subprocess
from pathlib import Path

import pytest

from hw.profile import Hardware
from stages.packaging.c_source.features import CHECKS, OPTIONAL
from tests.stages.packaging.runtime.loaded import Loaded, memory, run_program
from tests.stages.packaging.support import (
    X86_64,
    copy_runtime,
    package,
    write,
    zig,
)

pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64" or platform.system() != "Linux",
    reason="runs packages for x86-64 Linux natively",
)


# What Linux calls the features that LLVM names differently.
_LINUX = {
    **{"pclmul": "pclmulqdq", "lzcnt": "abm", "sahf": "lahf_lm", "bmi": "bmi1", "sse3": "pni"},
    **{"sse4.1": "sse4_1", "sse4.2": "sse4_2", "avxvnni": "avx_vnni"},
    **{"avx512bf16": "avx512_bf16", "avx512fp16": "avx512_fp16", "avx512vnni": "avx512_vnni"},
    **{"avx512vbmi2": "avx512_vbmi2", "avx512bitalg": "avx512_bitalg"},
    **{"avx512vpopcntdq": "avx512_vpopcntdq", "amx-bf16": "amx_bf16", "amx-tile": "amx_tile"},
    **{"amx-int8": "amx_int8", "avxvnniint8": "avx_vnni_int8"},
}


def test_the_runtime_sees_the_features_that_linux_sees(tmp_path: Path) -> None:
    """CPUID leaves, bits and saved state of every feature, against /proc/cpuinfo."""
    line = next(
        line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("flags")
    )
    flags = set(line.split())
    rows = "\n".join(
        f'{{"{_LINUX.get(name, name)}", {{{{{", ".join(f"{word}u" for word in check)}}}}}}},'
        for name, check in CHECKS["x86_64"].items()
    )
    (tmp_path / "ask.c").write_text(
        '#include "runtime.h"\n#include <stdio.h>\n'
        "static const struct { const char *name; struct rt_feature feature; } all[] = {\n"
        f"{rows}\n}};\n"
        "int main(void) { for (int i = 0; i < (int)(sizeof all / sizeof *all); i++)\n"
        "    if (rt_has_features(&all[i].feature, 1)) puts(all[i].name); }\n"
    )
    copy_runtime(tmp_path, "runtime.h", "processor.c")
    zig(tmp_path, "cc", "ask.c", "processor.c", "-lpthread", "-o", "ask")
    done = subprocess.run([tmp_path / "ask"], capture_output=True, text=True, check=True)
    known = {_LINUX.get(name, name) for name in CHECKS["x86_64"]}
    assert set(done.stdout.split()) == flags & known


def test_a_processor_that_lacks_a_feature_is_refused(tmp_path: Path) -> None:
    flags = set(Path("/proc/cpuinfo").read_text().split())
    known = CHECKS["x86_64"].keys() - OPTIONAL
    lacking = [name for name in known if _LINUX.get(name, name) not in flags]
    if not lacking:
        pytest.skip("this processor has every feature")
    data = X86_64.model_dump() | {"features": tuple(f"+{name}" for name in lacking)}
    files = package(Hardware.model_validate(data), "picky")
    library = Loaded(write(tmp_path, files), "picky")
    room = memory(1 << 20)
    at = ctypes.c_void_p(room.ctypes.data)
    error = library.entry("init")(at, at, 1)
    assert error == library.entry("supported")() == 4
    sentence = library.text(error)
    assert sentence.startswith(f"this package needs a processor with {sorted(lacking)[0]}")
    done = run_program(tmp_path / "picky")
    assert (done.returncode, done.stderr) == (2, f"error: {sentence}\n")
