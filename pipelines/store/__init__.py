"""The store: what was built, under the hash of all that it was built from.

`keys` makes the hashes, of code as `python_sources` reads it; `store` keeps artifacts, each with
its `manifest`, and `items`, which are smaller than a stage; `roots` notes which recipe used which;
`atomic` writes files so that a reader sees all of one or nothing.
"""
