"""Boards at an address: a runner there, reached by ssh, that times kernels and runs packages."""
