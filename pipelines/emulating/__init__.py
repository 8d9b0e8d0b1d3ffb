"""Emulating: a package and other engines on a board's processor, counted and modelled."""
