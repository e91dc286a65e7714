"""What is read and asked for: paths, runs as arrays, constellations, places, scenarios, quantities.

Everything here comes from files or from the core, in units that people read. Nothing is summed up
or shown: that is for `analysis` and what stands above it.
"""
