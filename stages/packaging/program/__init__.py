"""The program that a package runs: kernels in call order, buffers and where they lie, constants.

Nothing of TVM is left in it.
"""
