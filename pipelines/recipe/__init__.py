"""The recipe: all that a user may say about a package.

`recipe` and its `sections` state the fields, `load` reads files and lays `overrides` of the command
line over them, `consistency` and `contradictions` find what cannot both be true, and
`recipe_slices` cuts out what each stage may see.
"""
