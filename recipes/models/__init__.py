"""Models that come with the recipes."""
