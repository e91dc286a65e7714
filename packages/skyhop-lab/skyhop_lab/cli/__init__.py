"""Commands of skyhop-lab, which join `skyhop` by its entry points."""
