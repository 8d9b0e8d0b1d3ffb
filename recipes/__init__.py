"""Recipes, the models that come with them, and the script that trains one."""
