"""Writes what lets others use a package: a loader for Python, pkg-config, CMake, examples.

The texts stand in `client_files/`; here they learn names, types and formats of one package.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from hw.profile import Hardware
from stages.packaging.c_source.graph_source import ABI_VERSION
from stages.packaging.c_source.kernel_calls import comment
from stages.packaging.files.templates import filled
from stages.packaging.program.kernel_program import TensorSpec

_TELLING_TIMES = {
    '"InputError", "LibraryError"': '"InputError", "LayerTime", "LibraryError"',
    # It calls itself while no other thread may.
    "threading.Lock()": "threading.RLock()",
}
_RPATH = "-Wl,-rpath,'$ORIGIN' "


def client_files(
    name: str,
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    hardware: Hardware,
    formats: Iterable[str],
    profile: bool = False,
) -> dict[str, bytes]:
    """File name → content, where the package's formats have a use for it: the loader where there is
    a shared library; it tells layer times if `profile`."""
    formats = frozenset(formats)
    texts = {}
    if "shared" in formats:
        texts[f"{name}.py"] = loader(name, inputs, outputs, profile)
    if formats & {"shared", "static"}:
        texts["example.c"] = example_c(name, inputs, outputs, formats)
        texts["example.cpp"] = example_cpp(name, inputs, outputs, formats)
        texts[f"{name}.pc"] = pkg_config(name, hardware, formats)
        texts[f"{name}Config.cmake"] = cmake(name, formats)
    return {file: text.encode() for file, text in texts.items()}


def loader(
    name: str,
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    profile: bool = False,
) -> str:
    """NAME.py: Python that runs libNAME.so beside it, and tells layer times if `profile`."""
    given = ", ".join(f"{t.name!r}: np.zeros({t.shape}, {t.dtype!r})" for t in inputs)
    doc = f"""{name}: a compiled neural network. Generated; do not edit.

It needs lib{name}.so beside it, and NumPy:

    import numpy as np
    from {name} import Network

    with Network(threads=2) as net:
        outputs = net({{{given}}})
    outputs[{outputs[0].name!r}]  # {outputs[0].dtype}{list(outputs[0].shape)}
"""
    return filled(
        "loader.py",
        {
            '"""@DOC@"""': '"""' + doc.replace("\\", "\\\\").replace('"""', '\\"\\"\\"') + '"""',
            "@NAME@": name,
            "0  # @ABI@": str(ABI_VERSION),
            "()  # @INPUTS@": _python(inputs),
            "()  # @OUTPUTS@": _python(outputs),
            **(_TELLING_TIMES if profile else {}),
        },
        profile,
    )


def example_c(
    name: str, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], formats: Iterable[str]
) -> str:
    """example.c: a whole program that runs the package."""
    reader = """
static int is_read(const char *path, void *tensor, size_t size) {
    FILE *file = fopen(path, "rb");
    size_t count = file ? fread(tensor, size, 1, file) : 0;
    if (file) fclose(file);
    if (!count) fprintf(stderr, "%s does not hold %zu bytes\\n", path, size);
    return count == 1;
}
"""
    return filled(
        "example.c.in",
        {
            "@HOW@": "\n".join(f" *     {line}" for line in _compiling("cc", "c", name, formats)),
            "@TENSORS@": "\n".join(
                f"{_meaning(spec)}\nstatic {spec.c_type} {place}[{size}];"
                for place, size, spec in _places(name, inputs, outputs)
            ),
            "@READER@": reader if inputs else "",
            "@ARGUMENTS@": "int arguments, char **argument" if inputs else "void",
            "@READ@\n": "".join(
                f"    if (arguments > {index + 1} && "
                f"!is_read(argument[{index + 1}], in_{index}, sizeof in_{index})) return 2;\n"
                for index in range(len(inputs))
            ),
            "@PRINT@": "\n".join(
                f'    printf("out_{index}:");\n'
                f"    for (size_t i = 0; i < 10 && i < sizeof out_{index} / sizeof *out_{index};"
                " i++)\n"
                f'        printf(" %.9g", (double)out_{index}[i]);\n'
                f'    printf("\\n");'
                for index in range(len(outputs))
            ),
            "@INS@": ", ".join(f"in_{index}" for index in range(len(inputs))) or "NULL",
            "@OUTS@": ", ".join(f"out_{index}" for index in range(len(outputs))),
            "@NAME@": name,
        },
    )


def example_cpp(
    name: str, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], formats: Iterable[str]
) -> str:
    """example.cpp: the same on zeros, with a class that owns context and arena."""
    compiling = _compiling("c++ -std=c++17", "cpp", name, formats)
    return filled(
        "example.cpp.in",
        {
            "@HOW@": "\n".join(f"//     {line}" for line in compiling),
            "@TENSORS@": "\n".join(
                f"        {_meaning(spec)}\n        std::vector<{spec.c_type}> {place}({size});"
                for place, size, spec in _places(name, inputs, outputs)
            ),
            "@PRINT@": "\n".join(
                f'        print("out_{index}", out_{index});' for index in range(len(outputs))
            ),
            "@INS@": ", ".join(f"in_{index}.data()" for index in range(len(inputs))) or "nullptr",
            "@OUTS@": ", ".join(f"out_{index}.data()" for index in range(len(outputs))),
            "@NAME@": name,
        },
    )


def pkg_config(name: str, hardware: Hardware, formats: Iterable[str]) -> str:
    """NAME.pc; its version is the ABI's."""
    libraries = {"shared", "static"} & set(formats)
    threads = " -pthread" if libraries == {"static"} else ""
    if libraries == {"shared", "static"}:
        threads = "\nLibs.private: -pthread"
    return filled(
        "package.pc.in",
        {
            "@TARGET@": f"{hardware.architecture} ({hardware.cpu})",
            "@ABI@": str(ABI_VERSION),
            "@LIBS@": threads,
            "@NAME@": name,
        },
    )


def cmake(name: str, formats: Iterable[str]) -> str:
    """NAMEConfig.cmake: targets NAME::shared and NAME::static, as far as there are libraries."""
    here = "${CMAKE_CURRENT_LIST_DIR}"
    libraries = {"shared": f"lib{name}.so", "static": f"lib{name}.a"}
    more = {
        "shared": f"\n    IMPORTED_SONAME lib{name}.so",
        "static": "\n    INTERFACE_LINK_LIBRARIES Threads::Threads",
    }
    built = [item for item in libraries if item in formats]
    targets = [
        f"""
if(NOT TARGET {name}::{item})
  add_library({name}::{item} {item.upper()} IMPORTED)
  set_target_properties({name}::{item} PROPERTIES
    IMPORTED_LOCATION "{here}/{libraries[item]}"
    INTERFACE_INCLUDE_DIRECTORIES "{here}"{more[item]})
endif()
"""
        for item in built
    ]
    needs = "find_dependency(Threads)\n" if "static" in built else ""
    return filled(
        "Config.cmake.in",
        {
            "@TARGETS@": " and ".join(f"{name}::{item}" for item in built),
            "include(CMakeFindDependencyMacro)\n@BODY@": (
                ("include(CMakeFindDependencyMacro)\n" + needs if needs else "")
                + "".join(targets).rstrip("\n")
            ),
            "@NAME@": name,
        },
    )


def _compiling(compiler: str, ending: str, name: str, formats: Iterable[str]) -> list[str]:
    """Commands that compile an example, one of them with pkg-config."""
    found = f"$(pkg-config --cflags --libs ./{name}.pc)"
    last = _RPATH if "shared" in formats else ""
    threads = "" if "shared" in formats else "-pthread "
    return [
        f"{compiler} example.{ending} -L. -l{name} {threads}{last}-o example",
        f"{compiler} example.{ending} {found} {last}-o example",
    ]


def _places(
    name: str, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]
) -> list[tuple[str, str, TensorSpec]]:
    """Each tensor's variable, how many elements it has in C, and the tensor."""
    return [
        (f"{kind}_{i}", f"{name.upper()}_{kind.upper()}_{i}_BYTES / sizeof({spec.c_type})", spec)
        for kind, specs in (("in", inputs), ("out", outputs))
        for i, spec in enumerate(specs)
    ]


def _meaning(spec: TensorSpec) -> str:
    extents = "".join(f"[{extent}]" for extent in spec.shape)
    return f"/* {comment(spec.name)} {spec.dtype}{extents} */"


def _python(specs: Sequence[TensorSpec]) -> str:
    lines = []
    for spec in specs:
        # As the manifest has it: plain numbers, whose text Python reads back.
        meaning = None if spec.quantization is None else json.loads(json.dumps(spec.quantization))
        lines.append(f"    Tensor({spec.name!r}, {spec.dtype!r}, {spec.shape!r}, {meaning!r}),\n")
    return f"(\n{''.join(lines)})" if lines else "()"
