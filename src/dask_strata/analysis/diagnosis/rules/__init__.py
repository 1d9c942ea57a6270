"""Rules: one file a cause, in folders by area; see `registry`."""
