"""The far end of the demo's measurements, with Python alone: `far_end.py PORT [--iperf3]`.

Datagrams come back; streams are taken or given, as their first bytes ask for, by iperf3 or by this.
Jobs give it to their server as text, which keeps it short, and without curly brackets.
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
"""Which way, for how many seconds, how many bit/s at the most (0: as fast as it goes)."""


def echo(port: int) -> None:
    """Send datagrams back."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
        own.bind(("", port))
        while True:
            datagram, whence = own.recvfrom(2048)
            with contextlib.suppress(OSError):
                own.sendto(datagram, whence)


def send(stream: socket.socket, seconds: float, bps: float) -> int:
    """Send for so long, so fast."""
    begin, sent = time.monotonic(), 0
    while (passed := time.monotonic() - begin) < seconds:
        if bps and sent * 8 > bps * passed:
            time.sleep(0.005)
        else:
            sent += stream.send(PIECE)
    return sent


def answer(stream: socket.socket) -> None:
    """Give or take a stream."""
    with stream, contextlib.suppress(OSError, struct.error):
        way, seconds, bps = ORDER.unpack(stream.recv(ORDER.size, socket.MSG_WAITALL))
        if way == DOWN:
            send(stream, seconds, bps)
            return
        while stream.recv(1 << 18):
            pass


def serve(port: int, *, with_iperf3: bool) -> None:
    """Be there until told to end."""
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
