"""The testbed's protocol: `testbed.proto`, and the modules that `scripts/setup.sh` generates."""
