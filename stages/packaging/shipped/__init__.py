"""Texts that packages hold as they stand here, but for what stands between two @.

`stages.packaging.files.templates` fills them in. They are part of the stage's key with every
letter.
"""
