"""Composites that have a kernel of their own.

Pools, padding, softmax, sums of rows, look-up tables, packing of images and of computed weights,
and whatever tensor expressions (TE) say.
"""
