"""Emulating: a package and other engines on a board's processor under QEMU, counted and modelled."""
