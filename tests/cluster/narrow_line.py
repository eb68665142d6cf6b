"""A bandwidth limit by the kernel: a network namespace of this process, whose loopback device passes a given rate."""

import ctypes
import os
import shutil
import subprocess

import pytest

CLONE_NEWNET = 0x40000000
BURST = 128 << 10  # more than the largest packet
QUEUE = 64 << 20   # large enough to drop nothing: back-pressure makes senders wait


class NarrowLine:
    """Until end(), all processes that this thread starts are in the limited network."""

    def __init__(self, rate):
        if shutil.which("tc") is None:
            pytest.skip("tc is missing: apt install iproute2")
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        if self._libc.unshare(CLONE_NEWNET) != 0:
            os.close(self._before)
            pytest.skip("namespaces are not to be had here: this wants root, or a kernel that lets users make them")
        try:
            for command in ("ip link set lo up", f"tc qdisc add dev lo root tbf rate {8 * int(rate)} burst {BURST} limit {QUEUE}"):
                done = subprocess.run(command.split(), capture_output=True, text=True)
                if done.returncode != 0:
                    pytest.skip(f"{command}: {done.stderr.strip()}")
        except BaseException:
            self.end()
            raise

    def end(self):
        status = self._libc.setns(self._before, CLONE_NEWNET)
        os.close(self._before)
        assert status == 0, os.strerror(ctypes.get_errno())
