"""Benchmarks: a package's time beside other engines' on the same network, and each kernel alone."""
