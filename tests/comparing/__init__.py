"""Builds every package of two commits and says what differs: bytes, code, outputs, costs.

`python -m tests.comparing OLD NEW`; tests/README.md says how to use it. A change is proved by the
first of three that holds: the packages are the same bytes (E0), the same code under other names
(E1), or give equal outputs at about the same cost (E2).
"""
