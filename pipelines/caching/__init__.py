"""A remote store that several work folders share: artifacts and items, signed by who built them."""
