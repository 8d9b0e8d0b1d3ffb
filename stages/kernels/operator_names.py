"""Names of this room's operators that passes ask for; see `stages.dialect.names`."""

from __future__ import annotations

from stages.dialect.names import PREFIX

QNN_BITPACK = f"{PREFIX}bitpack"
QNN_TO_BYTES = f"{PREFIX}to_bytes"
QNN_FROM_BYTES = f"{PREFIX}from_bytes"
QNN_TO_TABLES = f"{PREFIX}to_tables"
QNN_FROM_PLANES = f"{PREFIX}from_planes"
QNN_TAKE_CHANNELS = f"{PREFIX}take_channels"
QNN_PAD_CHANNELS = f"{PREFIX}pad_channels"
QNN_DIRECT_CONV2D = f"{PREFIX}direct_conv2d"
QNN_DIRECT_DENSE = f"{PREFIX}direct_dense"
QNN_PACKED_CONV2D = f"{PREFIX}packed_conv2d"
QNN_PACKED_WINOGRAD = f"{PREFIX}packed_winograd"
QNN_PACKED_DEPTHWISE = f"{PREFIX}packed_depthwise"

PACKED_CONVOLUTIONS = (QNN_PACKED_CONV2D, QNN_PACKED_WINOGRAD, QNN_PACKED_DEPTHWISE)
"""Operators whose sums a micro-kernel computes, or vectors around taps that lie side by side."""
