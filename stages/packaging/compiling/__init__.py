"""From functions of TIR to objects and assembly, and from objects to libraries and programs."""
