"""The tables and figures of the sources, each with what was published beside what ours gives."""
