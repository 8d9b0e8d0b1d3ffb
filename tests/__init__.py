"""Tests; what all of them, and the processes they start, have to do with threads."""

import os

# Products are small here, and several tests run at once: threads of OpenBLAS that wait for each
# other take eight times the processor that the products do. It reads this as NumPy is imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
