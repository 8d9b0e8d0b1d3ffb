"""A folder of one's own: recipes, models, boards and artifacts outside the clone of bitkiln."""
