"""Clusters without a launcher: each process is started, disturbed and read individually."""

import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time

import forks
from conftest import COMMAND

# The beginning of every script. `say` writes one line; `attempt` reports the end of a call: "ok", or the error's class
# and text.
PRELUDE = """
import os, signal, sys, time
from polyverso._numpy import np
import polyverso as pv

def say(*words):
    sys.stdout.write(" ".join(map(str, words)) + "\\n")  # in one piece: the log goes to the same pipe
    sys.stdout.flush()

def attempt(call, *arguments, **more):
    begun = time.monotonic()
    try:
        call(*arguments, **more)
        ending = "ok"
    except pv.Error as error:
        ending = f"{type(error).__name__}: {error}"
    say("after", f"{time.monotonic() - begun:.2f}", ending)

def wait_for_word():
    return sys.stdin.readline().strip()
"""


def started(command, environment, listener=None):
    """A process whose standard output and error are one pipe."""
    return subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        pass_fds=() if listener is None else (listener,), start_new_session=True,
    )


def state_of(pid):
    """As in /proc: "T" is stopped."""
    with open(f"/proc/{pid}/stat", encoding="utf-8") as stat:
        return stat.read().rsplit(") ", 1)[1][0]


class Node:
    """One process, and its lines of output."""

    def __init__(self, label, process):
        self.label = label
        self.lines = []
        self._queue = queue.Queue()
        self.process = process
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self._queue.put(line.rstrip("\n"))
        self._queue.put(None)

    def hear(self, text, seconds=60.0):
        """Waits for a line that contains `text`, and returns it."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                line = self._queue.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"{self.label}: no line with {text!r} within {seconds} s; there were {self.lines}") from None
            assert line is not None, f"{self.label}: ended with {self.process.wait()} without a line with {text!r}: {self.lines}"
            self.lines.append(line)
            if text in line:
                return line

    def forget(self):
        """Drops the output so far: hear() then returns only new lines."""
        while not self._queue.empty():
            line = self._queue.get()
            if line is None:
                return self._queue.put(None)
            self.lines.append(line)

    def hear_attempt(self, seconds=60.0):
        """Returns (duration of the call in seconds, "ok" or the error)."""
        deadline = time.monotonic() + seconds
        while not (line := self.hear("after ", max(0.0, deadline - time.monotonic()))).startswith("after "):
            pass  # a line of the log
        _, took, ending = line.split(" ", 2)
        return float(took), ending

    def tell(self, word):
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()

    def kill(self, number=signal.SIGKILL):
        self.process.send_signal(number)
        while number == signal.SIGSTOP and state_of(self.process.pid) != "T":  # the signal takes effect with a delay
            time.sleep(0.001)

    def ends(self, status=0, seconds=60.0):
        try:
            ended = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.label}: still running after {seconds} s; it said {self.lines}") from None
        if ended != status:
            while (line := self._queue.get(timeout=5)) is not None:
                self.lines.append(line)
        assert ended == status, f"{self.label}: ended with {ended}: {self.lines}"


class Cluster:
    """Workers have the first ranks, servers follow, as under `polyverso run`. Processes are started one by one.

    network  hosts.Hosts. None: this machine
    place    from a rank to the number of its host; by default in blocks: ranks 0 and 1 of eight on the first of four
    """

    def __init__(self, workers, servers=0, network=None, place=None, **settings):
        self.workers, self.servers = workers, servers
        self.settings = settings
        self.nodes = []
        self.network = network
        self.place = place or (lambda rank: rank * len(network) // (workers + servers))
        self.listener = socket.create_server(("127.0.0.1", 0)) if network is None else self.host_of(0).listener()
        host, port = self.listener.getsockname()[:2]
        self.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def host_of(self, rank):
        """The hosts.Host of a rank."""
        return self.network[self.place(rank)]

    def environment(self, rank, /, **settings):
        environment = {key: value for key, value in os.environ.items() if not key.startswith("POLYVERSO_")}
        role = "server" if rank >= self.workers else "worker" if self.servers else "all"
        told = dict(master=self.address, nodes=self.workers + self.servers, rank=rank, role=role, secret="of the tests",
                    init_timeout_ms=60000)
        if self.network is not None:
            told.update(bind=self.host_of(rank).address)
        told.update(self.settings, **settings)
        environment.update({f"POLYVERSO_{key.upper()}": str(value) for key, value in told.items() if value is not None})
        return environment

    def start(self, rank, command, /, **settings):
        def begin(environment, listener):
            if listener is not None:
                environment["POLYVERSO_LISTEN_FD"] = str(listener)
            return started(command if self.network is None else [*self.host_of(rank).inside, *command], environment, listener)

        return self._start(rank, begin, settings)

    def _start(self, rank, begin, settings):
        listener = self.listener if rank == 0 else None
        process = begin(self.environment(rank, **settings), None if listener is None else listener.fileno())
        node = Node(f"w{rank}" if rank < self.workers else f"s{rank - self.workers}", process)
        if listener is not None:
            self.listener.close()
            self.listener = None
        self.nodes.append(node)
        return node

    def python(self, rank, script, /, **settings):
        if self.network is not None:
            return self.start(rank, [sys.executable, "-c", PRELUDE + script], **settings)
        return self._start(rank, lambda environment, listener: forks.start(PRELUDE + script, environment, listener), settings)

    def server(self, number, /, **settings):
        return self.start(self.workers + number, [COMMAND, "server"], **settings)

    def end(self):
        if self.listener is not None:
            self.listener.close()
        for node in self.nodes:
            if node.process.poll() is None:
                node.process.kill()
                node.process.wait()
            node.process.stdin.close()
