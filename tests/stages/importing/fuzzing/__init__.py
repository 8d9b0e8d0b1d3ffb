"""Damaged model files: whatever bytes come, importing ends in a model or in one StageError."""
