"""libipc's server among strangers, what waits in it when somebody types Ctrl-C, and trees of processes that lose a node."""

import ctypes
import ctypes.util
import hashlib
import hmac
import os
import random
import secrets
import signal
import socket
import struct
import subprocess

import pytest

HELLO, PROOF, REFUSE, SHARE = 1, 2, 3, 5  # records of core/wire/handshake.hpp
BODIES = {HELLO: 120, PROOF: 32, REFUSE: 0, SHARE: 32}
HAS_SECRET = 2
SODIUM = ctypes.CDLL(ctypes.util.find_library("sodium"))

SERVER = """
local ipc = require('libipc')
local server, port = ipc.server('127.0.0.1')
print(port) io.stdout:flush()
while true do
  local received, value = pcall(function()
    server:clients(1, function() end)
    return server:recvAny()
  end)
  print(received, value) io.stdout:flush()
  if value == 'enough' then break end
end
server:clients(function(client) client:send('bye') end)
server:close()
"""

WAITS = {
    "join": "ipc.map(1, function() require('libipc').workqueue('none'):read() end):join()",
    "read": "ipc.workqueue('none') ipc.map(1, function() end) ipc.workqueue('none'):read()",
    "recv": "local server, port = ipc.server() local client = ipc.client(port) client:recv()",
    "clients": "local server = ipc.server() server:clients(1, function() end)",
}


def lua(interpreter, script, **environment):
    variables = {key: value for key, value in os.environ.items() if key != "POLYVERSO_SECRET"}
    return subprocess.Popen([interpreter, "-e", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env=dict(variables, **environment))


def sodium(name, size, *arguments):
    """What a function of libsodium's writes."""
    out = ctypes.create_string_buffer(size)
    assert getattr(SODIUM, name)(out, *arguments) == 0
    return out.raw


def hashed(*parts):
    """SHA-512 of what CPace hashes, each part behind its length in LEB128."""
    whole = b""
    for part in parts:
        length = len(part)
        while length >= 0x80:
            whole, length = whole + bytes([0x80 | length & 0x7F]), length >> 7
        whole += bytes([length]) + part
    return hashlib.sha512(whole).digest()


def record(kind, body=b""):
    return struct.pack("<4I", 0x4D564801, 0x01020304, kind, 0) + body


def next_record(connection):
    """The kind of the next record, and the whole record."""
    head = connection.recv(16, socket.MSG_WAITALL)
    magic, _, kind, _ = struct.unpack("<4I", head)
    assert magic == 0x4D564801
    return kind, head + (connection.recv(BODIES[kind], socket.MSG_WAITALL) if BODIES[kind] else b"")


def dial(port, secret=b"", channel=b"ipc 3"):
    """A client's handshake; the connection, and whether both sides accepted each other."""
    stranger = socket.create_connection(("127.0.0.1", port), timeout=20)
    flags = HAS_SECRET if secret else 0
    hello = record(HELLO, struct.pack("<HHIQQ", 3, 3, flags, secrets.randbits(63) | 1, 0) + secrets.token_bytes(32) + bytes(64))
    stranger.sendall(hello)
    _, answer = next_record(stranger)
    session = hashlib.sha512(hello + answer).digest()
    padding = bytes(128 - 18 - 1 - len(secret) - 1)
    purpose = b"polyverso hello " + channel
    generator = sodium("crypto_core_ristretto255_from_hash", 32, hashed(b"CPaceRistretto255", secret, padding, purpose, session))
    scalar = secrets.token_bytes(31) + b"\0"
    share = sodium("crypto_scalarmult_ristretto255", 32, scalar, generator)
    try:
        stranger.sendall(record(SHARE, share))
        kind, answer = next_record(stranger)
    except ConnectionError:  # refused because of the hello
        kind = REFUSE
    if kind == REFUSE:
        return stranger, False
    theirs = answer[16:]
    common = sodium("crypto_scalarmult_ristretto255", 32, scalar, theirs)
    key = hashed(b"CPaceRistretto255_ISK", session, common, share, b"dialer", theirs, b"listener")
    stranger.sendall(record(PROOF, hmac.digest(key, b"dialer", "sha512")[:32]))
    kind, answer = next_record(stranger)
    return stranger, kind == PROOF and answer[16:] == hmac.digest(key, b"listener", "sha512")[:32]


def is_closed(connection):
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


def message(text):
    return b"\5" + struct.pack("<Q", len(text)) + text


def framed(body):
    return struct.pack("<Q", len(body)) + body


@pytest.mark.parametrize("interpreter", ["luajit", "lua5.4"])
def test_a_server_outlives_strangers(interpreter):
    server = lua(interpreter, SERVER)
    port = int(server.stdout.readline())
    silent = socket.create_connection(("127.0.0.1", port))
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", port)) as garbage:
            garbage.sendall(random.Random(1).randbytes(500))

    def says(sent):
        """What the server says of a client that sends this."""
        client, taken = dial(port)
        assert taken
        client.sendall(sent)
        line = server.stdout.readline()
        client.close()
        return line

    assert "invalid ipc message" in says(struct.pack("<Q", 1 << 60) + b"x")
    assert "function" in says(framed(b"\7" + struct.pack("<QI", 4, 0) + b"\x1bLua"))
    # Closed ones are noticed when they are read from.
    noticed = server.stdout.readline()
    assert "closed the connection" in noticed
    assert "too early" in says(framed(b"\5" + struct.pack("<Q", 1 << 50) + b"x"))
    assert "closed the connection" in server.stdout.readline()
    assert "unknown kind" in says(framed(b"\x63"))
    assert "closed the connection" in server.stdout.readline()
    last, taken = dial(port)
    assert taken
    last.sendall(framed(message(b"enough")))
    assert "enough" in server.stdout.readline()
    assert last.recv(20, socket.MSG_WAITALL) == framed(message(b"bye"))
    out, err = server.communicate(timeout=20)
    assert (server.returncode, out, err) == (0, "", "")
    silent.close()


def test_whoever_does_not_know_the_secret_is_no_client():
    server = lua("luajit", SERVER, POLYVERSO_SECRET="of the tests")
    port = int(server.stdout.readline())
    for refused in ({"secret": b""}, {"secret": b"another"}, {"secret": b"of the tests", "channel": b""}):  # the last: a cluster's member
        client, accepted = dial(port, **refused)
        assert not accepted and is_closed(client)
    assert dial(port, b"of the tests")[1]
    other = lua("luajit", f"require('libipc').client('127.0.0.1', {port})", POLYVERSO_SECRET="another")
    assert "POLYVERSO_SECRET" in other.communicate(timeout=20)[1]
    last, taken = dial(port, b"of the tests")
    assert taken
    last.sendall(framed(message(b"enough")))
    server.communicate(timeout=20)
    assert server.returncode == 0


@pytest.mark.parametrize("interpreter", ["luajit", "lua5.1", "lua5.4"])
@pytest.mark.parametrize("wait", WAITS)
def test_a_signal_ends_what_waits(interpreter, wait):
    script = f"local ipc = require('libipc') print('waiting') io.stdout:flush() {WAITS[wait]}"
    process = lua(interpreter, script)
    assert process.stdout.readline() == "waiting\n"
    process.send_signal(signal.SIGINT)
    err = process.communicate(timeout=20)[1]
    assert process.returncode != 0 and "interrupted!" in err


TREE = """
require('torch')
local ipc, index = require('libipc'), tonumber(os.getenv('INDEX'))
local tree = require('ipc.LocalhostTree')(index > 0 and index or nil, 3, tonumber(os.getenv('PARENT')))
local value = torch.ones(1000)
for step = 1, 1000 do
  if step == 5 and tree.nodeIndex == 2 and os.getenv('ENDS') then break end
  if step == 5 and tree.nodeIndex == 2 and os.getenv('DIES') then os.execute('kill -9 ' .. ipc.getpid()) end
  local reduced, failure = pcall(tree.allReduce, value:fill(1), function(a, b) return a:add(b) end)
  if not reduced then print(tree.nodeIndex, step, failure) break end
  if step == 10 then print(tree.nodeIndex, step, value:sum()) break end
end
"""


def tree_of(interpreter, tmp_path, index=lambda i: i, **environment):
    return [lua(interpreter, TREE, INDEX=str(index(i)), PARENT=str(os.getpid()), XDG_RUNTIME_DIR=str(tmp_path), **environment) for i in (1, 2, 3)]


@pytest.mark.parametrize("interpreter", ["luajit", "lua5.1", "lua5.4"])
def test_processes_of_one_parent_find_each_other(interpreter, tmp_path):
    for index in (lambda i: i), (lambda i: 0):  # told who they are, or not; the second tree is not disturbed by what the first left
        nodes = [node.communicate(timeout=60) for node in tree_of(interpreter, tmp_path, index)]
        assert sorted(out.split() for out, _ in nodes) == [[str(i), "10", nodes[0][0].split()[2]] for i in (1, 2, 3)]
        assert float(nodes[0][0].split()[2]) == 3000 and all(err == "" for _, err in nodes)


def test_the_others_are_told_which_node_is_lost(tmp_path):
    first, second, third = tree_of("luajit", tmp_path, DIES="1")
    for survivor in (first, third):
        out, _ = survivor.communicate(timeout=60)
        assert "MV_EPEERLOST" in out and "1" in out.partition("MV_EPEERLOST")[2]  # worker 1 is node 2
        assert survivor.returncode == 0
    assert second.wait(timeout=20) == -signal.SIGKILL
    second.communicate()


@pytest.mark.parametrize("interpreter", ["luajit", "lua5.4"])
def test_the_others_are_told_at_once_which_node_has_left(interpreter, tmp_path):
    first, second, third = tree_of(interpreter, tmp_path, ENDS="1")
    for survivor in (first, third):
        out, _ = survivor.communicate(timeout=60)
        assert out.split()[1] == "5" and "MV_EPEERLOST" in out and "worker 1" in out, out
    assert second.communicate(timeout=20) == ("", "") and second.returncode == 0


REPORTS = {
    "first": ("require('ipc.LocalhostTree')(1, 3)", "s for clients of 127.0.0.1:", "0 of 2 connected"),
    "second": ("require('ipc.LocalhostTree')(2, 3)", "node 2 of 3 has waited", ".localhost"),
    "client": ("local server, port = ipc.server() server:close() ipc.client('127.0.0.1', port)", "s for a server at 127.0.0.1:", "refused"),
}


@pytest.mark.parametrize("interpreter", ["luajit", "lua5.1"])
def test_a_long_wait_says_what_it_is_for(interpreter, tmp_path):
    processes = {}
    for name, (script, *_) in REPORTS.items():
        (tmp_path / name).mkdir()
        processes[name] = lua(interpreter, f"local ipc = require('libipc') {script}", XDG_RUNTIME_DIR=str(tmp_path / name))
    try:
        for name, (_, *wanted) in REPORTS.items():
            line = processes[name].stderr.readline()
            assert all(text in line for text in wanted), line
    finally:
        for process in processes.values():
            process.kill()
            process.communicate()
