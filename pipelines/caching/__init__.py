"""The shared store of several work folders: artifacts and items, signed by who built them."""
