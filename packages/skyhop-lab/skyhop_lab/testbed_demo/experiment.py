"""Client of the demo's jobs: small measurements with Python's standard library alone.

    measure SERVER PORT S [--iperf3]  RTTs, then a download and an upload
    hops SERVER S                     RTT to each hop, printed like traceroute -n
    upload SERVER PORT S BPS          upload at a rate, as a load
    watch SERVER PORT S BPS           download at a rate, like traffic of the host's owner

RTTs are measured with echoed UDP datagrams; latency.csv has one line each.
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
    """Measure RTT and throughput; write latency.csv and throughput.json."""
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
    print(json.dumps({direction: each.get("bps") for direction, each in found.items()}))


def _iperf3(server: str, port: int, seconds: float, *more: str) -> dict[str, object]:
    command = ["iperf3", "-c", server, "-p", str(port), "-t", f"{max(seconds, 1):.0f}", "--json"]
    why = ""
    for attempt in range(_ATTEMPTS):
        # The server reports that it is busy until it has finished the previous test.
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
    """Return a probe's RTT in ms; `None` if its echo comes after the next probe is due."""
    while select.select([probe], [], [], max(0.0, until - time.time()))[0]:
        try:
            number, sent = _STAMP.unpack(probe.recv(2048))
        except (OSError, struct.error):
            continue
        if number == seq:
            return (time.time() - float(sent)) * 1e3
    return None


def _stream(server: str, port: int, seconds: float, direction: bytes, bps: float = 0.0) -> float:
    """Send or receive over TCP for `seconds`; return the average rate in bit/s."""
    begin = time.monotonic()
    with socket.create_connection((server, port), timeout=10) as stream:
        stream.sendall(ORDER.pack(direction, seconds, bps))
        if direction == UP:
            moved = send(stream, seconds, bps)
            stream.shutdown(socket.SHUT_WR)
            # The server closes the connection once it has read all data.
            stream.recv(1)
        else:
            moved = 0
            while piece := stream.recv(1 << 18):
                moved += len(piece)
    return 8 * int(moved) / (time.monotonic() - begin)


def hops(server: str, seconds: float) -> None:
    """Trace the route repeatedly for `seconds`."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        print(f"traceroute to {server} ({server}), {_MOST_HOPS} hops max, 60 byte packets")
        for ttl in range(1, _MOST_HOPS + 1):
            address, rtt_ms, reached = _hop(server, ttl)
            said = "*" if address is None else f"{address}  {rtt_ms:.3f} ms"
            print(f"{ttl:2}  {said}", flush=True)
            if reached:
                break
        time.sleep(0.2)


def _hop(server: str, ttl: int) -> "tuple[str | None, float, bool]":
    """Return the address of the hop at this TTL, its RTT in ms, and whether it is the server."""
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
            # struct sock_extended_err: errno, origin, type, code, …; then the sender's address.
            kind = data[5]
            address = socket.inet_ntoa(data[20:24])
            if kind in (_TIME_EXCEEDED, _UNREACHABLE):
                return address, rtt_ms, kind == _UNREACHABLE
    return None, 0.0, False


def main(words: "list[str]") -> None:
    """Run the command that the arguments name."""
    with_iperf3 = "--iperf3" in words
    what, *rest = [word for word in words if word != "--iperf3"]
    if what == "measure":
        measure(rest[0], int(rest[1]), float(rest[2]), with_iperf3=with_iperf3)
    elif what == "hops":
        hops(rest[0], float(rest[1]))
    else:
        direction = UP if what == "upload" else DOWN
        _stream(rest[0], int(rest[1]), float(rest[2]), direction, float(rest[3]))


if __name__ == "__main__":
    main(sys.argv[1:])
