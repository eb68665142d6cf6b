"""Disturbances from outside: connections with arbitrary bytes, and random bytes in a member's shared memory."""

import os
import random
import re
import socket
import struct
import threading


def hello():
    """The first record of a connection; for its layout, see core/wire/handshake.cpp."""
    return struct.pack("<IIIIHHIQQ", 0x4D564801, 0x01020304, 1, 0, 1, 1, 2, 77, 0) + bytes(32 + 64)


class Vandal:
    """Connects to every listener: sends random bytes or hellos with wrong bits, stays silent, or opens many connections at once."""

    def __init__(self, seed):
        self._dice = random.Random(seed)
        self._over = threading.Event()
        self._standing = []
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def _addresses(self):
        found = []
        with open("/proc/net/tcp", encoding="ascii") as file:
            for line in list(file)[1:]:
                fields = line.split()
                if fields[3] == "0A":
                    found.append(("127.0.0.1", int(fields[1].split(":")[1], 16)))
        with open("/proc/net/unix", encoding="ascii") as file:
            names = {line.split()[-1] for line in file if " @" in line}
        return sorted(found) + ["\0" + name[1:] for name in sorted(names)]

    def _connect(self, address):
        connection = socket.socket(socket.AF_UNIX if isinstance(address, str) else socket.AF_INET)
        connection.settimeout(0.2)
        connection.connect(address)
        return connection

    def _disturb(self, address):
        dice = self._dice
        with self._connect(address) as connection:
            kind = dice.randrange(5)
            if kind == 0:
                connection.sendall(dice.randbytes(dice.randrange(1, 5000)))
            elif kind == 1:
                record = bytearray(hello())
                for _ in range(dice.randrange(0, 4)):
                    record[dice.randrange(len(record))] ^= 1 << dice.randrange(8)
                length = dice.choice([len(record), dice.randrange(1, len(record))])
                connection.sendall(bytes(record[:length]) + dice.randbytes(dice.choice([0, 48, 200])))
                if dice.random() < 0.5:
                    connection.recv(4096)
            elif kind == 2:
                self._standing.append(connection.dup())
            elif kind == 3:
                self._standing += [self._connect(address) for _ in range(dice.randrange(1, 40))]
            else:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # reset on close

    def _work(self):
        while not self._over.wait(0.02):
            for address in self._addresses():
                try:
                    self._disturb(address)
                except OSError:
                    pass
            while len(self._standing) > 150:
                self._standing.pop(self._dice.randrange(len(self._standing))).close()

    def end(self):
        self._over.set()
        self._thread.join()
        for connection in self._standing:
            connection.close()


def scribble(pid, dice, times):
    """Writes random bytes into the memory that a process shares with others, like a bug in the process could."""
    with open(f"/proc/{pid}/maps", encoding="utf-8") as maps:
        lines = re.findall(r"^([0-9a-f]+)-([0-9a-f]+) .w.s \S+ \S+ \S+\s+/memfd:", maps.read(), re.MULTILINE)
    shared = [(int(begin, 16), int(end, 16)) for begin, end in lines]
    if not shared:
        return
    memory = os.open(f"/proc/{pid}/mem", os.O_RDWR)
    try:
        for _ in range(times):
            begin, end = dice.choice(shared)
            # Headers are at the start.
            at = dice.randrange(begin, min(end, begin + dice.choice([512, 4096, end - begin])))
            os.pwrite(memory, dice.choice([dice.randbytes(8), bytes(8), b"\xff" * 8])[: dice.choice([1, 4, 8])], at)
    finally:
        os.close(memory)
