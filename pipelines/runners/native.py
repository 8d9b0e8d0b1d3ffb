"""Runs a package's shared library in this process."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipelines.errors import UserError
from pipelines.runners.package import ABI_VERSION, Package

_ALIGNMENT = 64
_PAGE = 4096


def aligned(nbytes: int) -> np.ndarray:
    """Return uninitialised memory of `nbytes`, 64-byte aligned."""
    room = np.empty(nbytes + _ALIGNMENT, np.uint8)
    start = -room.ctypes.data % _ALIGNMENT
    return room[start : start + nbytes]


def placed(array: np.ndarray) -> np.ndarray:
    """A copy of an array where packages read it in place (`rt_in_place` in their runtime): aligned,
    and the 64 bytes behind it in its last page."""
    room = aligned(array.nbytes + _ALIGNMENT)
    last = room.ctypes.data + array.nbytes - 1
    begin = _ALIGNMENT if last % _PAGE + _ALIGNMENT >= _PAGE else 0
    copy: np.ndarray = room[begin : begin + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


@dataclass
class _Session:
    """One initialised context; the arrays keep its memory alive."""

    threads: int
    context: np.ndarray
    arena: np.ndarray


class NativeRunner:
    """One package loaded through ctypes; `close` ends its threads."""

    how = "natively"

    def __init__(self, package: Package) -> None:
        self.package = package
        try:
            self._library: Any = ctypes.CDLL(str(package.library().resolve()))
        except OSError as error:
            raise UserError(f"{package.library()} cannot be loaded here: {error}") from error
        self._session: _Session | None = None
        self._declare()
        version = self._call("abi_version")
        if version != ABI_VERSION:
            raise UserError(
                f"{package.name} has ABI version {version}, this bitkiln runs {ABI_VERSION}; "
                "build it again"
            )
        self._check(self._call("supported"))

    def run(self, inputs: Mapping[str, np.ndarray], threads: int = 1) -> dict[str, np.ndarray]:
        """Run one inference; inputs and outputs by name, in the package's shapes and dtypes."""
        outputs, _ = self.timed(inputs, threads, 1)
        return outputs

    def timed(
        self, inputs: Mapping[str, np.ndarray], threads: int, repeat: int
    ) -> tuple[dict[str, np.ndarray], list[float]]:
        """Run the same inference `repeat` times; return the last outputs and each time, seconds."""
        arrays = [placed(array) for array in self.package.check_inputs(inputs)]
        session = self._open(threads)
        results = [aligned(item.nbytes) for item in self.package.outputs]
        ins = (ctypes.c_void_p * max(1, len(arrays)))(*(item.ctypes.data for item in arrays))
        outs = (ctypes.c_void_p * len(results))(*(item.ctypes.data for item in results))
        # Found once, not in every run that is timed.
        run, context = self._entry("run"), ctypes.c_void_p(session.context.ctypes.data)
        times = []
        for _ in range(repeat):
            begin = time.perf_counter()
            error = run(context, ins, outs)
            times.append(time.perf_counter() - begin)
            self._check(error)
        outputs = {
            item.name: result.view(item.dtype).reshape(item.shape)
            for item, result in zip(self.package.outputs, results, strict=True)
        }
        return outputs, times

    def close(self) -> None:
        """End the threads and free the arena."""
        if self._session is not None:
            self._call("finish", self._session.context.ctypes.data)
            self._session = None

    def __enter__(self) -> NativeRunner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self, threads: int) -> _Session:
        if self._session is not None and self._session.threads == threads:
            return self._session
        self.close()
        arena_bytes = self._call("arena_size", threads)
        if arena_bytes == 0:
            raise UserError(f"{threads} threads are not possible; accepted: 1 to 256")
        context = aligned(self._call("context_size"))
        context[:] = 0
        session = _Session(threads, context, aligned(arena_bytes))
        self._check(
            self._call("init", session.context.ctypes.data, session.arena.ctypes.data, threads)
        )
        self._session = session
        return session

    def _declare(self) -> None:
        pointer, int32, size = ctypes.c_void_p, ctypes.c_int32, ctypes.c_size_t
        pointers = ctypes.POINTER(ctypes.c_void_p)
        for function, result, arguments in (
            ("abi_version", int32, ()),
            ("arena_size", size, (int32,)),
            ("context_size", size, ()),
            ("supported", ctypes.c_int, ()),
            ("init", ctypes.c_int, (pointer, pointer, int32)),
            ("run", ctypes.c_int, (pointer, pointers, pointers)),
            ("finish", None, (pointer,)),
            ("error", ctypes.c_char_p, (ctypes.c_int,)),
        ):
            entry = self._entry(function)
            entry.restype, entry.argtypes = result, arguments

    def _call(self, function: str, *arguments: Any) -> Any:
        return self._entry(function)(*arguments)

    def _entry(self, function: str) -> Any:
        return getattr(self._library, f"{self.package.name}_{function}")

    def _check(self, error: int) -> None:
        if error:
            raise UserError(f"{self.package.name}: {self._call('error', error).decode()}")
