"""Fleet of simulated nodes on one orchestrator, by discrete events (`python -m validation fleet`).

The orchestrator's code is real, and so are a node's orders, decisions, database, claims and
reports. Simulated are the clock, the programs of runs, the host's traffic, and the network.
"""
