"""@DOC@"""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

__all__ = ["INPUTS", "OUTPUTS", "InputError", "LibraryError", "Network", "NetworkError", "Tensor"]

_ALIGNMENT = 64
_PAGE = 4096


class NetworkError(Exception):
    """Whatever goes wrong with a network; what is said of it is one sentence."""


class LibraryError(NetworkError):
    """The library is missing, or is for another processor, system or version."""


class InputError(NetworkError, ValueError):
    """Inputs that the network does not take: what was given, and what is accepted."""


class Tensor(NamedTuple):
    """An input or output.

    `quantization` has `scale` and `zero_point` where a stored q stands for
    `scale * (q - zero_point)`. Where it has `rounding`, too, the tensor holds real values, which
    the network itself rounds to such q as a first step.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    quantization: Mapping[str, Any] | None = None

    @property
    def is_stored(self) -> bool:
        """Whether it holds integers that stand for real values."""
        return self.quantization is not None and "rounding" not in self.quantization

    def __str__(self) -> str:
        return f"{self.name} {self.dtype}{list(self.shape)}"


# @LAYER_TIME@
# What the build knows is written here, so that this file can be read, and works, without others.
NAME = "@NAME@"
ABI_VERSION = 0  # @ABI@
INPUTS: tuple[Tensor, ...] = ()  # @INPUTS@
OUTPUTS: tuple[Tensor, ...] = ()  # @OUTPUTS@


class Network:
    """The network with memory and threads of its own, ready to run.

    `threads` are 1 to 256. `library` is the path of the shared library, unless it lies beside this
    file. One thread calls a Network at a time, others wait; for more at once, make more of them.
    After a fork the child makes its own. LibraryError says why the library cannot be used here.
    """

    inputs = INPUTS
    outputs = OUTPUTS

    def __init__(self, threads: int = 1, library: str | os.PathLike[str] | None = None) -> None:
        if not isinstance(threads, int) or not 1 <= threads <= 256:
            raise NetworkError(f"{threads!r} threads are not possible; accepted: 1 to 256")
        beside = Path(__file__).resolve().parent / f"lib{NAME}.so"
        self._library = _load(beside if library is None else Path(library))
        self.threads = threads
        self._lock = threading.Lock()
        self._process = os.getpid()
        context = aligned(self._entry("context_size")())
        context[:] = 0
        arena = aligned(self._entry("arena_size")(threads))
        # What is passed in every call is made once: the call itself takes about a microsecond.
        self._context = ctypes.c_void_p(context.ctypes.data)
        self._check(self._entry("init")(self._context, ctypes.c_void_p(arena.ctypes.data), threads))
        self._places = [
            (item.name, np.dtype(item.dtype), item.shape, _room(item)) for item in self.inputs
        ]
        self._results = [(item.name, _room(item)) for item in self.outputs]
        self._ins = _pointers([place[3] for place in self._places])
        self._outs = _pointers([result for _, result in self._results])
        # An entry of its own: without declared types ctypes takes 0.2 us less for a call.
        self._run = self._library[f"{NAME}_run"]
        # The threads end before their memory goes, even if nobody calls close.
        self._end = weakref.finalize(
            self, _finish, self._entry("finish"), self._context, (context, arena)
        )

    def __call__(self, inputs: Mapping[str, np.ndarray] | np.ndarray) -> dict[str, np.ndarray]:
        """Run once: arrays by name, or the array of a network that has one input → new arrays.

        Arrays have the dtype and shape that `inputs` and `outputs` of this object tell, in any
        memory layout. InputError names all that does not fit.
        """
        given = inputs if isinstance(inputs, dict) else self._named(inputs)
        with self._lock:
            if not self._end.alive:
                raise NetworkError(f"{NAME} is closed; make a new Network")
            for name, dtype, shape, place in self._places:
                array = given.get(name)
                if (
                    not isinstance(array, np.ndarray)
                    or array.dtype != dtype
                    or array.shape != shape
                ):
                    raise self._refusal(given)
                place[...] = array
            if len(given) != len(self._places):
                raise self._refusal(given)
            error = self._run(self._context, self._ins, self._outs)
            if error:
                self._check(error)
            return {name: result.copy() for name, result in self._results}

    # @PROFILE@
    def quantize(self, name: str, values: Any) -> np.ndarray:
        """Real values → what the input or output `name` stores of them.

        They are divided by its scale in float32, rounded with halves to the even integer, shifted
        by its zero point, and cut to the range of its dtype.
        """
        tensor, scale, point = self._stored(name)
        limits = np.iinfo(tensor.dtype)
        scaled = np.rint(np.asarray(values, np.float32) / scale).astype(np.float64)
        if np.isnan(scaled).any():
            raise InputError(f"values for {name!r} are not numbers (NaN)")
        return np.clip(scaled + point, limits.min, limits.max).astype(tensor.dtype)

    def dequantize(self, name: str, stored: Any) -> np.ndarray:
        """What the input or output `name` stores → the real values in float32."""
        _, scale, point = self._stored(name)
        shifted = np.asarray(stored).astype(np.float64) - point
        real: np.ndarray = shifted.astype(np.float32) * scale
        return real

    def close(self) -> None:
        """End the threads and free the memory; a second time it does nothing."""
        with self._lock:
            self._end()

    def __enter__(self) -> Network:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = f"{self.threads} threads" if self._end.alive else "closed"
        return f"<{NAME}: {_listed(self.inputs)} -> {_listed(self.outputs)}, {state}>"

    def _entry(self, function: str) -> Any:
        return getattr(self._library, f"{NAME}_{function}")

    def _check(self, error: int) -> None:
        if error:
            text = self._entry("error")(error).decode()
            if os.getpid() != self._process:
                text += "; in Python: make a new Network in this process"
            raise NetworkError(f"{NAME}: {text}")

    def _named(self, inputs: Any) -> Mapping[str, Any]:
        """Inputs by name, of whatever is no dict."""
        if not isinstance(inputs, np.ndarray) and isinstance(inputs, Mapping):
            return dict(inputs)
        if len(self.inputs) != 1:
            raise InputError(
                f"{type(inputs).__name__} was given; {NAME} takes a mapping of "
                f"{len(self.inputs)} inputs: {_listed(self.inputs)}"
            )
        return {self.inputs[0].name: inputs}

    def _refusal(self, given: Mapping[str, Any]) -> InputError:
        """All that does not fit, in words."""
        wanted = {item.name: item for item in self.inputs}
        faults = [f"no input is named {name!r}" for name in given if name not in wanted]
        faults += [f"input {name!r} is missing" for name in wanted if name not in given]
        for name, array in given.items():
            item = wanted.get(name)
            if item is None:
                continue
            if not isinstance(array, np.ndarray):
                faults.append(f"{name!r} is no NumPy array but {type(array).__name__}")
            elif array.dtype != np.dtype(item.dtype) or array.shape != item.shape:
                faults.append(f"{name!r} is {array.dtype}{list(array.shape)}")
        return InputError(f"{'; '.join(faults)}; {NAME} takes {_listed(self.inputs)}")

    def _stored(self, name: str) -> tuple[Tensor, np.float32, float]:
        """A tensor of integers that stand for real values, its scale and its zero point."""
        known = {item.name: item for item in (*self.outputs, *self.inputs) if item.is_stored}
        if name not in known:
            stored = _listed(tuple(known.values())) or "none"
            raise InputError(f"{name!r} stores no quantized values; of {NAME} these do: {stored}")
        quantization = known[name].quantization or {}
        return known[name], np.float32(quantization["scale"]), float(quantization["zero_point"])


def aligned(nbytes: int) -> np.ndarray:
    """Uninitialised memory of `nbytes`, 64-byte aligned."""
    room = np.empty(nbytes + _ALIGNMENT, np.uint8)
    start = -room.ctypes.data % _ALIGNMENT
    return room[start : start + nbytes]


def in_place(nbytes: int) -> np.ndarray:
    """Memory of `nbytes` which the library uses in place: aligned, and the 64 bytes behind it in
    its last page."""
    room = aligned(nbytes + _ALIGNMENT)
    last = room.ctypes.data + nbytes - 1
    begin = _ALIGNMENT if last % _PAGE + _ALIGNMENT >= _PAGE else 0
    return room[begin : begin + nbytes]


def _room(item: Tensor) -> np.ndarray:
    """An array for an input or output."""
    nbytes = int(np.prod(item.shape, dtype=np.int64)) * np.dtype(item.dtype).itemsize
    room: np.ndarray = in_place(nbytes).view(item.dtype).reshape(item.shape)
    return room


def _pointers(arrays: list[np.ndarray]) -> Any:
    return (ctypes.c_void_p * max(1, len(arrays)))(*(array.ctypes.data for array in arrays))


def _listed(tensors: tuple[Tensor, ...]) -> str:
    return ", ".join(str(item) for item in tensors)


def _load(path: Path) -> Any:
    """The library with its functions declared, if this machine can run it."""
    if not path.is_file():
        raise LibraryError(f"{path} is missing; keep lib{NAME}.so beside {NAME}.py")
    try:
        library = ctypes.CDLL(str(path.resolve()))
        pointer, int32, size = ctypes.c_void_p, ctypes.c_int32, ctypes.c_size_t
        for function, result, arguments in (
            ("abi_version", int32, ()),
            ("arena_size", size, (int32,)),
            ("context_size", size, ()),
            ("supported", ctypes.c_int, ()),
            ("init", ctypes.c_int, (pointer, pointer, int32)),
            ("finish", None, (pointer,)),
            ("error", ctypes.c_char_p, (ctypes.c_int,)),
        ):
            entry = getattr(library, f"{NAME}_{function}")
            entry.restype, entry.argtypes = result, arguments
    except (OSError, AttributeError) as error:
        raise LibraryError(f"{path} cannot be loaded here: {error}") from error
    version = getattr(library, f"{NAME}_abi_version")()
    if version != ABI_VERSION:
        raise LibraryError(
            f"{path} has ABI version {version}, {NAME}.py is for {ABI_VERSION}; "
            "keep the files of one build together"
        )
    code = getattr(library, f"{NAME}_supported")()
    if code:
        raise LibraryError(f"{NAME}: {getattr(library, f'{NAME}_error')(code).decode()}")
    return library


def _finish(finish: Any, context: Any, _memory: Any) -> None:
    """End the threads of a context, which `_memory` holds."""
    finish(context)
