"""Instructions counted under QEMU, and the cycles that models of cores give them: see README.md."""
