"""Builds a package that is given as text, with the C compiler that links packages."""

from __future__ import annotations

import re
import shutil
import tempfile
import weakref
from functools import cache
from pathlib import Path

from pipelines.errors import UserError, shown
from stages.errors import StageError

SOURCE = "source"
"""Where in a package its text is."""


class Builder:
    """The text of one package; what is built of it is there as long as this lives.

    Which files belong to what, and which flags they need, is what its Makefile says: so what is
    tested is what others build.
    """

    def __init__(self, package: Path, name: str, system: str, cpu: str) -> None:
        self._text, self._name = package / SOURCE, name
        self._target = ("-target", system, f"-mcpu={cpu}")
        self._folder = Path(tempfile.mkdtemp(prefix="bitkiln-source-"))
        weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        for path in sorted(self._text.rglob("*")):
            if path.is_file():
                link = self._folder / path.relative_to(self._text)
                link.parent.mkdir(exist_ok=True)
                link.symlink_to(path.resolve())

    def file(self, name: str) -> Path | None:
        """Return a library or the program, built; None for anything else."""
        library, archive = f"lib{self._name}.so", f"lib{self._name}.a"
        if name not in (library, archive, self._name):
            return None
        path = self._folder / name
        if path.is_file():
            return path
        try:
            objects = self._library()
            if name == library:
                self._cc("-shared", "-nostartfiles", f"-Wl,-soname,{name}", *objects, "-o", name)
            elif name == archive:
                self._zig("ar", "rcsD", name, *objects)
            else:
                replay = self._c("replay.o", self._said("PROGRAM"), self._said("$(REPLAY): FLAGS"))
                self._cc(*objects, replay, "-o", name)
        except StageError as error:
            raise UserError(f"{shown(self._text)}: {error}") from error
        return path

    def _library(self) -> list[str]:
        """The objects of the library, by file name."""
        if not (self._folder / "library.o").is_file():
            kernels = sorted(path.name for path in (self._folder / "kernels").glob("*.s"))
            self._cc("-c", *(f"kernels/{file}" for file in kernels), "-o", "kernels.o")
            self._cc("-c", "constants.s", "-o", "constants.o")
            self._c("library.o", [*self._said("RUNTIME"), "graph.c"], [])
        return ["library.o", "kernels.o", "constants.o"]

    def _c(self, out: str, sources: list[str], flags: list[str]) -> str:
        optimized = ("-O2", "-fno-sanitize=all")
        self._cc("-c", *optimized, *self._said("FLAGS"), *flags, *sources, "-o", out)
        return out

    def _said(self, variable: str) -> list[str]:
        """The words of a variable in the Makefile, but for what it asks the compiler."""
        makefile = (self._folder / "Makefile").read_text()
        line = re.search(rf"^{re.escape(variable)} [:+]?= (.*)$", makefile, re.MULTILINE)
        return [] if line is None else line[1].partition("$(")[0].split()

    def _cc(self, *arguments: str) -> None:
        linked = () if "-c" in arguments else ("-Wl,--gc-sections", "-s", "-lpthread")
        self._zig("cc", *self._target, *arguments, *linked)

    def _zig(self, *arguments: str) -> None:
        from stages.packaging.compiling.linker import default_cache, zig

        zig(self._folder, default_cache(), *arguments)


@cache
def builder(package: Path, name: str, system: str, cpu: str, digest: str) -> Builder:
    """The builder of a package; `digest` is that of what it is to build."""
    return Builder(package, name, system, cpu)
