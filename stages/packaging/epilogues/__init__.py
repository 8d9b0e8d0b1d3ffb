"""What follows the sums of a pixel: the rest of the composite, and how results are stored.

Rounding and thresholds are done here.

`ChannelVectors` is the epilogue in TIR, read from the dialect's own arithmetic. `ChannelBlocks` is
the older one in LLVM IR, which levels behind matrix tiles (AMX) have.
"""
