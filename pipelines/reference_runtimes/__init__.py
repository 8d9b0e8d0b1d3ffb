"""The frameworks' own runtimes, to compare with: one module each; `runtime` opens the right one."""
