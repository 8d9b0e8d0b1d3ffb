"""Kernels around sums, composed of parts: how inputs are read, where sums stand, how work is split.

`parts.py` says what the parts ask of each other; epilogues, in a room of their own, are the fourth.
"""
