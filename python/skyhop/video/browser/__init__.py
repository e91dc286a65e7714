"""A film in a real browser, over a live run's path."""
