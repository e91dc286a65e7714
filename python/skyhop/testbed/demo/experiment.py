"""What the demo's jobs bring along, beside `far_end.py`: small measurements, with Python alone.

    measure SERVER PORT S [--iperf3]  round-trip times, then a download and an upload
    hops SERVER S                     each hop's round-trip time, as traceroute -n prints it
    upload SERVER PORT S BPS          a load
    watch SERVER PORT S BPS           what the owner of a host does

Round-trip times are those of UDP datagrams that come back, a line each in latency.csv.
"""

import contextlib
import json
import select
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

from far_end import DOWN, ORDER, UP, send  # type: ignore[import-not-found]

_STAMP = struct.Struct("!Qd")
_PROBE_S = 0.05
_IP_RECVERR = 11
_TIME_EXCEEDED, _UNREACHABLE = 11, 3
_TRACE_PORT = 33_434
_MOST_HOPS = 16
_ATTEMPTS = 3


def measure(server: str, port: int, seconds: float, *, with_iperf3: bool) -> None:
    """Write latency.csv and throughput.json."""
    share_s = seconds / 3
    _measure_latency(server, port, share_s)
    if with_iperf3:
        found = {
            "download": _iperf3(server, port, share_s, "-R"),
            "upload": _iperf3(server, port, share_s),
        }
    else:
        found = {
            "download": {"bps": _stream(server, port, share_s, DOWN)},
            "upload": {"bps": _stream(server, port, share_s, UP)},
        }
    with Path("throughput.json").open("w", encoding="utf-8") as file:
        json.dump(found, file, indent=1)
    print(json.dumps({way: each.get("bps") for way, each in found.items()}))


def _iperf3(server: str, port: int, seconds: float, *more: str) -> dict[str, object]:
    command = ["iperf3", "-c", server, "-p", str(port), "-t", f"{max(seconds, 1):.0f}", "--json"]
    why = ""
    for attempt in range(_ATTEMPTS):
        # A server that is still at the end of the test before says that it is busy.
        time.sleep(attempt * 0.5)
        done = subprocess.run([*command, *more], capture_output=True, text=True, check=False)
        said = json.loads(done.stdout or "{}")
        received = said.get("end", {}).get("sum_received")
        if received is not None and "error" not in said:
            return {"bps": received["bits_per_second"], "iperf3": said}
        why = said.get("error") or done.stderr.strip() or f"exit status {done.returncode}"
    raise SystemExit(f"iperf3: {why}")


def _measure_latency(server: str, port: int, seconds: float) -> None:
    rtts_ms = []
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe,
        Path("latency.csv").open("w", encoding="ascii") as file,
    ):
        probe.connect((server, port))
        print("seq,sent_s,rtt_ms", file=file)
        for seq in range(int(seconds / _PROBE_S)):
            sent = time.time()
            with contextlib.suppress(OSError):
                probe.send(_STAMP.pack(seq, sent))
            rtt_ms = _answer_to(probe, seq, sent + _PROBE_S)
            print(f"{seq},{sent:.6f},{'' if rtt_ms is None else f'{rtt_ms:.3f}'}", file=file)
            rtts_ms += [] if rtt_ms is None else [rtt_ms]
            time.sleep(max(0.0, sent + _PROBE_S - time.time()))
    if not rtts_ms:
        raise SystemExit("no datagram came back")
    rtts_ms.sort()
    print(f"{len(rtts_ms)} came back, median {rtts_ms[len(rtts_ms) // 2]:.1f} ms")


def _answer_to(probe: socket.socket, seq: int, until: float) -> "float | None":
    """Wait for a probe's answer; those that are later than the next probe are lost."""
    while select.select([probe], [], [], max(0.0, until - time.time()))[0]:
        try:
            number, sent = _STAMP.unpack(probe.recv(2048))
        except (OSError, struct.error):
            continue
        if number == seq:
            return (time.time() - float(sent)) * 1e3
    return None


def _stream(server: str, port: int, seconds: float, way: bytes, bps: float = 0.0) -> float:
    """Send or receive for so long; return the rate."""
    begin = time.monotonic()
    with socket.create_connection((server, port), timeout=10) as stream:
        stream.sendall(ORDER.pack(way, seconds, bps))
        if way == UP:
            moved = send(stream, seconds, bps)
            stream.shutdown(socket.SHUT_WR)
            # What is on its way still has to arrive.
            stream.recv(1)
        else:
            moved = 0
            while piece := stream.recv(1 << 18):
                moved += len(piece)
    return 8 * int(moved) / (time.monotonic() - begin)


def hops(server: str, seconds: float) -> None:
    """Trace the route again and again."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        print(f"traceroute to {server} ({server}), {_MOST_HOPS} hops max, 60 byte packets")
        for ttl in range(1, _MOST_HOPS + 1):
            whence, rtt_ms, reached = _hop(server, ttl)
            said = "*" if whence is None else f"{whence}  {rtt_ms:.3f} ms"
            print(f"{ttl:2}  {said}", flush=True)
            if reached:
                break
        time.sleep(0.2)


def _hop(server: str, ttl: int) -> "tuple[str | None, float, bool]":
    """Return who answers a datagram of this time to live, how fast, and whether it is the end."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.setsockopt(socket.IPPROTO_IP, _IP_RECVERR, 1)
        probe.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, ttl)
        probe.connect((server, _TRACE_PORT + ttl))
        sent = time.monotonic()
        probe.send(bytes(32))
        waiting = select.poll()
        waiting.register(probe, 0)
        if not waiting.poll(1000):
            return None, 0.0, False
        rtt_ms = (time.monotonic() - sent) * 1e3
        _, ancillary, _, _ = probe.recvmsg(512, 512, socket.MSG_ERRQUEUE)
        for _, _, data in ancillary:
            # struct sock_extended_err: errno, origin, type, code, …; then who said so.
            kind = data[5]
            whence = socket.inet_ntoa(data[20:24])
            if kind in (_TIME_EXCEEDED, _UNREACHABLE):
                return whence, rtt_ms, kind == _UNREACHABLE
    return None, 0.0, False


def main(words: "list[str]") -> None:
    """Do what the words say."""
    with_iperf3 = "--iperf3" in words
    what, *rest = [word for word in words if word != "--iperf3"]
    if what == "measure":
        measure(rest[0], int(rest[1]), float(rest[2]), with_iperf3=with_iperf3)
    elif what == "hops":
        hops(rest[0], float(rest[1]))
    else:
        way = UP if what == "upload" else DOWN
        _stream(rest[0], int(rest[1]), float(rest[2]), way, float(rest[3]))


if __name__ == "__main__":
    main(sys.argv[1:])
