"""Emulated terminal, for programs that read terminals; it answers like a real one.

An `AnswerSource` (`feed.py`) provides the answers. `recorded.py` replays recorded answers;
`terminal.py` computes answers from a `Feed`, which gives the measurements of each second, from a
path file (`path_feed.py`), a run (`run_feed.py`) or a real link (`measuring.py`). `device.py`
handles requests, and `server.py` serves them over gRPC. Only `server.py` and the thread of
`measuring.py` read a clock.
"""
