"""One module a command; each has `run`, given plain data by the task of its name."""
