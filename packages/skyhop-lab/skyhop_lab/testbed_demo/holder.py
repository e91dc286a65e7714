"""Process at an end of a link of the demo, which passes its network namespace to the testbench.

It runs without skyhop's packages: `holder.py SOCKET NAME PHASE`.
"""

import os
import socket
import sys
import time


def main(path: str, name: str, phase_s: str) -> None:
    """Send the network namespace's descriptor, then wait until the testbench closes the socket."""
    network = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    with socket.socket() as listener, socket.socket(socket.AF_UNIX) as stage:
        listener.bind(("127.0.0.1", 0))
        # The live engine starts when a process listens at the far end, so this sets the link's
        # phase.
        if phase_s:
            time.sleep((float(phase_s) - time.time()) % 1)
        listener.listen(1)
        stage.connect(path)
        socket.send_fds(stage, [name.encode()], [network])
        stage.recv(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
