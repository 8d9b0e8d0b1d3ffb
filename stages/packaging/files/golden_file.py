"""Golden vectors as one small file that C and NumPy read alike.

Little-endian: 8 bytes `bkgold\\0\\2`; uint32 CRC-32 of all that follows it; uint32 samples, inputs,
outputs; uint64 bytes of the file; one record per input, then per output: name in 96 bytes and dtype
in 16, both ended by zeros (a long name is cut), uint64 bytes of one sample, uint64 offset of the
first; then the samples of each tensor, one after the other, every tensor 64-byte aligned. The
shapes stand in manifest.json.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping, Sequence

import numpy as np

from stages.errors import StageError
from stages.kinds import Golden
from stages.packaging.program.arena import align
from stages.packaging.program.kernel_program import TensorSpec

MAGIC = b"bkgold\0\2"
_HEADER = struct.Struct("<8s4IQ")
_CHECKED = 12
"""Where what the checksum is of begins."""
_RECORD = struct.Struct("<96s16s2Q")


def write_golden(
    golden: Golden, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]
) -> bytes:
    """Serialize golden vectors whose tensors are (samples, *shape) of their specs."""
    specs = (*inputs, *outputs)
    arrays = [_samples(golden.inputs, spec, "input") for spec in inputs]
    arrays += [_samples(golden.outputs, spec, "output") for spec in outputs]
    counts = {len(array) for array in arrays}
    if len(counts) != 1 or counts == {0}:
        raise StageError(f"golden tensors hold {sorted(counts)} samples; one equal, positive count")
    offset = align(_HEADER.size + len(specs) * _RECORD.size)
    head, body = bytearray(_HEADER.size), bytearray()
    for spec, array in zip(specs, arrays, strict=True):
        body += b"\0" * (align(len(body)) - len(body))
        head += _RECORD.pack(
            _cut(spec.name, 95), spec.dtype.encode(), spec.nbytes, offset + len(body)
        )
        body += array.tobytes()
    head += b"\0" * (offset - len(head))
    size = len(head) + len(body)
    _HEADER.pack_into(head, 0, MAGIC, 0, counts.pop(), len(inputs), len(outputs), size)
    checksum = zlib.crc32(body, zlib.crc32(head[_CHECKED:]))
    struct.pack_into("<I", head, len(MAGIC), checksum)
    return bytes(head + body)


def read_golden(data: bytes, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> Golden:
    """Read golden vectors back; tensors come as (samples, *shape)."""
    try:
        magic, checksum, samples, n_in, n_out, size = _HEADER.unpack_from(data)
        if magic != MAGIC or (n_in, n_out) != (len(inputs), len(outputs)):
            raise ValueError("its header does not match the manifest")
        if size != len(data):
            raise ValueError(f"{len(data)} bytes instead of {size}")
        if checksum != zlib.crc32(memoryview(data)[_CHECKED:]):
            raise ValueError("its checksum is another one")
        arrays: list[np.ndarray] = []
        for index, spec in enumerate((*inputs, *outputs)):
            record = _RECORD.unpack_from(data, _HEADER.size + index * _RECORD.size)
            if record[2] != spec.nbytes:
                raise ValueError(f"a sample of {spec.name} has {record[2]} bytes")
            flat = np.frombuffer(
                data, _little_endian(spec), count=samples * spec.elements, offset=record[3]
            )
            arrays.append(flat.reshape(samples, *spec.shape).astype(spec.dtype))
    except (struct.error, ValueError) as error:
        raise ValueError(f"damaged golden vectors: {error}") from error
    return Golden(
        {spec.name: array for spec, array in zip(inputs, arrays, strict=False)},
        {spec.name: array for spec, array in zip(outputs, arrays[n_in:], strict=True)},
    )


def _samples(tensors: Mapping[str, np.ndarray], spec: TensorSpec, kind: str) -> np.ndarray:
    if spec.name not in tensors:
        raise StageError(
            f"the golden vectors lack the {kind} {spec.name!r}; they hold {', '.join(tensors)}"
        )
    array = tensors[spec.name]
    if array.dtype != np.dtype(spec.dtype) or array.shape[1:] != spec.shape:
        raise StageError(
            f"golden {kind} {spec.name!r} is {array.dtype}{array.shape[1:]} a sample; "
            f"the package has {spec.dtype}{spec.shape}"
        )
    if kind == "output" and array.dtype.kind == "f":
        # Integers have one zero: packages write +0 where float rounding would leave -0.
        array = array + array.dtype.type(0)
    return np.ascontiguousarray(array).astype(_little_endian(spec), copy=False)


def _little_endian(spec: TensorSpec) -> np.dtype:
    return np.dtype(spec.dtype).newbyteorder("<")


def _cut(name: str, size: int) -> bytes:
    return name.encode()[:size].decode(errors="ignore").encode()
