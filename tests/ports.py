"""Ports for servers that a test starts in processes of their own."""

import random
import socket


def free_port() -> int:
    """A port of the loopback that nobody listens on.

    From below the range out of which the kernel serves everybody else, so that no connection
    made meanwhile can take it; at random, since others choose at the same time.
    """
    while True:
        port = random.randint(10_000, 32_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
