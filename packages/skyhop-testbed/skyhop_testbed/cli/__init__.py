"""Commands of skyhop-testbed, which join `skyhop` by its entry points."""
