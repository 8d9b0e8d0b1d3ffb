"""One page about a built recipe: what it runs, what that takes, and what is known of it."""
