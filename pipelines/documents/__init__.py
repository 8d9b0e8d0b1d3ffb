"""YAML that people write: recipes, boards and settings.

`positions` reads a text into a tree whose keys and values know their places, `trees` reads files
and lays one tree over another, `validate` makes a checked model of a tree, with each fault at its
place, and `fields` says which fields a model has. `board_files` reads boards.
"""
