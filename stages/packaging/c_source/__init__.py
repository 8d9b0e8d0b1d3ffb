"""graph.c: kernel calls in order, the functions of a package, what its processor must have."""
