"""Python processes that have their imports when they begin: a parent that has imported NumPy and polyverso forks for each of them. A test starts hundreds,
and a third of a second of processor time for each would be half of what it takes.

This file is both sides: the module of the tests, and as a program the parent of the processes."""

import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time

LARGEST = 1 << 20  # bytes of a message


class Process:
    """A forked process, with what the tests use of subprocess.Popen."""

    def __init__(self, forks, pid, stdin, stdout, stderr):
        self._forks = forks
        self.pid = pid
        self.returncode = None
        self.stdin = stdin
        self.stdout = stdout
        self.stderr = stderr

    def poll(self):
        if self.returncode is None:
            self.returncode = self._forks.ended(self.pid, 0)
        return self.returncode

    def wait(self, timeout=None):
        if self.returncode is None:
            self.returncode = self._forks.ended(self.pid, timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired("python3", timeout)
        return self.returncode

    def send_signal(self, number):
        if self.poll() is None:
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:
                pass

    def kill(self):
        self.send_signal(signal.SIGKILL)

    def terminate(self):
        self.send_signal(signal.SIGTERM)

    def communicate(self, timeout=60):
        """Closes the standard input, and waits for the end. Returns the rest of the standard output and of the error."""
        texts = ["", ""]

        def read(number, stream):
            with stream:
                texts[number] = stream.read()

        if not self.stdin.closed:
            self.stdin.close()
        streams = [(number, stream) for number, stream in enumerate((self.stdout, self.stderr)) if stream and not stream.closed]
        readers = [threading.Thread(target=read, args=stream, daemon=True) for stream in streams]
        for reader in readers:
            reader.start()
        deadline = time.monotonic() + timeout
        for reader in readers:
            reader.join(max(deadline - time.monotonic(), 0))
            if reader.is_alive():
                raise subprocess.TimeoutExpired("python3", timeout)
        self.wait(max(deadline - time.monotonic(), 1))
        return tuple(texts)


class Forks:
    def __init__(self):
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        environment = {key: value for key, value in os.environ.items() if not key.startswith("POLYVERSO_")}
        with theirs:
            self._parent = subprocess.Popen([sys.executable, "-B", __file__, str(theirs.fileno())], env=environment, pass_fds=[theirs.fileno()], start_new_session=True)
        self._starting = threading.Lock()
        self._changed = threading.Condition()
        self._begun = []
        self._ended = {}
        threading.Thread(target=self._read, daemon=True).start()

    def start(self, script, environment, listener=None, words=(), own_stderr=False):
        """A Process that runs the script, with these arguments. POLYVERSO_LISTEN_FD is its copy of `listener`. Its standard error is a pipe of its own, or
        that of its output."""
        inputs, outputs = os.pipe(), os.pipe()
        errors = os.pipe() if own_stderr else (None, outputs[1])
        lent = [inputs[0], outputs[1], errors[1], *([] if listener is None else [listener])]
        message = {"script": script, "words": list(words), "environment": environment, "folder": os.getcwd()}
        with self._starting:  # the answers come in the order of the messages
            socket.send_fds(self._socket, [json.dumps(message).encode()], lent)
            with self._changed:
                assert self._changed.wait_for(lambda: self._begun, 60) and self._begun[0] is not None, "the parent of the processes has ended"
                pid = self._begun.pop(0)
        for fd in {*lent[:3]}:
            os.close(fd)
        readers = [None if fd is None else open(fd, encoding="utf-8") for fd in (outputs[0], errors[0])]
        return Process(self, pid, open(inputs[1], "w", encoding="utf-8"), *readers)

    def ended(self, pid, timeout):
        """The exit status as in subprocess, or None."""
        with self._changed:
            self._changed.wait_for(lambda: pid in self._ended, timeout)
            return self._ended.get(pid)

    def _read(self):
        while answer := self._socket.recv(LARGEST):
            told = json.loads(answer)
            with self._changed:
                if "begun" in told:
                    self._begun.append(told["begun"])
                else:
                    self._ended[told["ended"]] = told["status"]
                self._changed.notify_all()
        with self._changed:
            self._begun.append(None)
            self._changed.notify_all()


_forks = {}


def start(script, environment, listener=None, words=(), own_stderr=False):
    """See Forks.start(). Each network namespace that this process uses has a parent."""
    namespace = os.readlink("/proc/self/ns/net")
    if namespace not in _forks:
        _forks[namespace] = Forks()
    return _forks[namespace].start(script, environment, listener, words, own_stderr)


def show_without_this_file(kind, error, trace, show=sys.__excepthook__):
    """As the interpreter shows an error of `python3 -c`. Without names of this file, which the script does not have."""
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    show(kind, error.with_traceback(trace), trace)


def serve(number):
    """Forks for each message. Returns the script of the process, in the process."""
    import numpy  # noqa: F401
    import polyverso
    import polyverso.group  # noqa: F401
    import polyverso.kvstore  # noqa: F401

    # The processes' collections of garbage, one of them at their end, need not look at what was imported.
    gc.collect()
    gc.freeze()
    inbox = socket.socket(fileno=number)
    woken, wake = socket.socketpair()
    wake.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake.fileno())

    while True:
        ready = select.select([inbox, woken], [], [])[0]
        if woken in ready:
            woken.recv(4096)
            try:
                while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                    inbox.send(json.dumps({"ended": ended[0], "status": os.waitstatus_to_exitcode(ended[1])}).encode())
            except ChildProcessError:
                pass
        if inbox not in ready:
            continue
        message, lent, _, _ = socket.recv_fds(inbox, LARGEST, 8)
        if not message:
            os._exit(0)  # the tests have ended
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for mine in (inbox, woken, wake):
                mine.close()
            return json.loads(message), lent
        inbox.send(json.dumps({"begun": pid}).encode())
        for fd in lent:
            os.close(fd)


if __name__ == "__main__":
    told, given = serve(int(sys.argv[1]))
    os.setsid()
    for standard, fd in enumerate(given[:3]):
        os.dup2(fd, standard)
        os.close(fd)
    sys.stdout.reconfigure(line_buffering=True)
    os.environ.clear()
    os.environ.update(told["environment"])
    if len(given) > 3:
        os.environ["POLYVERSO_LISTEN_FD"] = str(given[3])
    os.chdir(told["folder"])
    sys.argv = ["-c", *told["words"]]
    sys.excepthook = show_without_this_file
    program = compile(told["script"], "<string>", "exec")
    for name in [name for name in globals() if not name.startswith("__") and name not in ("program", "show_without_this_file")]:
        del globals()[name]
    exec(program)
