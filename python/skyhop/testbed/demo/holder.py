"""What runs at the ends of a demo's link: it hands over its network namespace, and waits.

It is started without skyhop's packages, and needs none: `holder.py SOCKET NAME PHASE`.
"""

import os
import socket
import sys
import time


def main(path: str, name: str, phase_s: str) -> None:
    """Hand over, and wait until the stage hangs up."""
    network = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    with socket.socket() as listener, socket.socket(socket.AF_UNIX) as stage:
        listener.bind(("127.0.0.1", 0))
        # The engine waits until something listens at the far end: so its time begins when wanted.
        if phase_s:
            time.sleep((float(phase_s) - time.time()) % 1)
        listener.listen(1)
        stage.connect(path)
        socket.send_fds(stage, [name.encode()], [network])
        stage.recv(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
