"""Tests.

NumPy's products of matrices, which are small here, get no threads of their own: two workers that
wait for each other's, spinning, take three times the processor's time. OpenBLAS reads this when
NumPy is imported first, which is after this.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
