"""The testbed's protocol: `testbed.proto`, and what the set-up generates from it."""
