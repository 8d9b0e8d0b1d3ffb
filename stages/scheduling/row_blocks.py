"""Which row blocks are worth a trial: as many output rows as the caches hold with the weights.

For every row block a kernel goes through all blocks of 32 channels, and for each through the rows
of the row block. So the block's weights are read again for every row, the row block's activations
for every block of channels, and all weights for every row block. One output row at a time is the
order `blocks_inner`, all of them are `rows_inner`.
"""

from __future__ import annotations

from math import prod

from hw.profile import Hardware
from stages.kernels.kernel_candidates import KernelCandidate
from stages.kernels.operand_storage import WORD_BYTES
from stages.kernels.signature import BLOCK
from stages.kernels.workloads import Workload

ORDER = "rows_inner"
"""The order of work items within a row block."""
KIB = 1024


def row_blocks(workload: Workload, candidate: KernelCandidate, hardware: Hardware) -> list[int]:
    """Numbers of output rows for which row blocks of a layer fill half of a cache, largest first.

    The L1 cache with a block's weights or without them, as they stream by; the second one with
    all weights or a block's. They are between 1 and all rows, both of which orders give.
    """
    height = workload.geometry.output_rows
    blocks = -(-workload.outputs // BLOCK)
    if blocks == 1:
        return []  # nothing is read twice
    row, weights = _sizes(workload, candidate)
    near, second = (KIB * kib // 2 for kib in (hardware.l1d_kib, hardware.l2_kib))
    rooms = near - weights, near, second - weights * blocks, second - weights
    found = {_even(height, int(room // row)) for room in rooms if room >= row}
    return sorted(found - {1, height}, reverse=True)


def _sizes(workload: Workload, candidate: KernelCandidate) -> tuple[float, int]:
    """Bytes of the activations that an output row adds, and of the weights of a block."""
    geometry, signature = workload.geometry, candidate.signature
    parts = BLOCK // signature.channels
    if signature.is_transformed:
        transform = candidate.transform(geometry, workload.outputs)
        words = geometry.row_words(signature.channels_per_word) // geometry.window[1]
        pixels = geometry.winograd_tiles(transform) * transform.products
        data = pixels * words * WORD_BYTES
        weights = transform.products * words * parts * signature.weight_bytes
        return data / geometry.output_rows, weights
    rows, words = geometry.rows_for(signature)
    window = prod(geometry.window)
    pixel = rows * words * signature.activation_bytes / window
    width = (geometry.output_width - 1) * geometry.strides[1] + geometry.window[1]
    return (
        pixel * width * min(geometry.strides[0], geometry.window[0]),
        rows * words * parts * signature.weight_bytes,
    )


def _even(height: int, rows: int) -> int:
    """At most so many rows of a height, in as few row blocks, of which the last is no rest."""
    blocks = -(-height // min(rows, height))
    return -(-height // blocks)
