"""An emulated terminal: programs that read terminals cannot tell it from one.

A `Source` (`source.py`) knows what it says: `recorded.py` replays recorded answers; `terminal.py`
makes answers of what a `Feed` tells second by second, of a path file (`of_path.py`), a run
(`of_run.py`) or what `measuring.py` measures. `device.py` answers requests, and `server.py` puts
that on the network. Only `server.py` and the thread of `measuring.py` read a clock.
"""
