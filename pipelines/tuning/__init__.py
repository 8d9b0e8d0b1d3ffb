"""Measuring which kernels are best: candidates, trials, and the ledger that keeps them."""
