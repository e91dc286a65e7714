"""Server of the demo's measurements, with Python's standard library alone.

Usage: `far_end.py PORT [--iperf3]`. It echoes UDP datagrams. It also sends or receives TCP streams,
as the first bytes of each connection request, unless iperf3 does that. Job files contain this
program as text, so it is short and has no curly brackets.
"""

import contextlib
import socket
import struct
import subprocess
import sys
import threading
import time

PIECE = bytes(16_384)
UP, DOWN = b"U", b"D"
ORDER = struct.Struct("!cdd")
"""Request for a stream: direction, duration in s, rate limit in bit/s (0: none)."""


def echo(port: int) -> None:
    """Echo each UDP datagram to its sender."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
        own.bind(("", port))
        while True:
            datagram, sender = own.recvfrom(2048)
            with contextlib.suppress(OSError):
                own.sendto(datagram, sender)


def send(stream: socket.socket, seconds: float, bps: float) -> int:
    """Send for a number of seconds, at most at `bps` bit/s (0: no limit); return the bytes sent."""
    begin, sent = time.monotonic(), 0
    while (passed := time.monotonic() - begin) < seconds:
        if bps and sent * 8 > bps * passed:
            time.sleep(0.005)
        else:
            sent += stream.send(PIECE)
    return sent


def answer(stream: socket.socket) -> None:
    """Send or receive one TCP stream, as its request says."""
    with stream, contextlib.suppress(OSError, struct.error):
        way, seconds, bps = ORDER.unpack(stream.recv(ORDER.size, socket.MSG_WAITALL))
        if way == DOWN:
            send(stream, seconds, bps)
            return
        while stream.recv(1 << 18):
            pass


def serve(port: int, *, with_iperf3: bool) -> None:
    """Serve on a port until a signal ends the process."""
    threading.Thread(target=echo, args=(port,), daemon=True).start()
    if with_iperf3:
        subprocess.run(["iperf3", "-s", "-p", str(port)], check=False)
        return
    with socket.create_server(("", port)) as listener:
        while True:
            stream, _ = listener.accept()
            threading.Thread(target=answer, args=(stream,), daemon=True).start()


if __name__ == "__main__":
    serve(int(sys.argv[1]), with_iperf3="--iperf3" in sys.argv)
