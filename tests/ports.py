"""Ports for tests that must name one before anybody listens there."""

import contextlib
import pathlib
import random
import socket


def free_ports(count=1):
    """The first of `count` consecutive ports that are free. They lie outside the range from which the system takes ports for connections and for
    listeners at port 0, so no other test gets one meanwhile, unless it asks here and chance gives it the same."""
    low, high = map(int, pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    outside = [port for port in range(10000, 65536 - count) if port + count <= low or port > high] or range(10000, 65536 - count)
    while True:
        first = random.choice(outside)
        with contextlib.suppress(OSError), contextlib.ExitStack() as taken:
            for port in range(first, first + count):
                taken.enter_context(socket.create_server(("", port)))
            return first
