"""Conformance: every model file imported, executed, and compared with its framework's runtime."""
