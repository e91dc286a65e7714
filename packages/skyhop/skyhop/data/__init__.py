"""Input data: paths, runs as arrays, constellations, places, scenarios, quantities.

All data is read from files or from the core, in units for people (s, ms, Mbit/s). Statistics
belong to `analysis`, and drawing to the packages that import `analysis`.
"""
