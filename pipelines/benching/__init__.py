"""Benching: a package's time beside that of every engine that runs the same network here."""
