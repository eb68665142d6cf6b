"""The sides of comparisons: how each is started and pinned."""

import pathlib
import shutil
import sys
import tempfile
from dataclasses import dataclass

from .process import Broken, Process, started


@dataclass(frozen=True)
class Pinning:
    """The CPUs of the measuring process and of its server, as taskset lists; the same for all sides."""

    client: str
    server: str

    def __str__(self):
        if "," in self.client:
            return f"all processes on any of the CPUs {self.client}"
        if self.client == self.server:
            return f"both processes on CPU {self.client}"
        return f"client on CPU {self.client}, server on CPU {self.server}"


# Redis is one program that selects its function by its name. Debian's package redis-tools has it under this name and
# starts no service.
REDIS = shutil.which("redis-check-rdb")


class Folder:
    """A temporary folder that is removed when its party ends."""

    def __init__(self, folder):
        self._folder = folder

    def end(self, seconds):
        self._folder.cleanup()


class Parties:
    """Starts parties from a build tree. `cpus`: the CPUs to use, at least one."""

    def __init__(self, build, sources, cpus, environment):
        self.programs = build / "bench" / "bin"
        self.sources = sources
        self.launcher = build / "bin" / "polyverso"
        self.environment = environment
        self.one_cpu = Pinning(str(cpus[0]), str(cpus[0]))
        self.two_cpus = Pinning(str(cpus[0]), str(cpus[1])) if len(cpus) > 1 else None
        self.two_if_any = self.two_cpus or self.one_cpu
        self.any_cpu = Pinning(*2 * [",".join(map(str, cpus))])

    # ------------------------------------------------------------------ Polyverso

    def table_alone(self):
        """A worker in a cluster of one process."""
        return self._alone("a cluster of one", [self.programs / "table_worker"])

    def keys_alone(self):
        """Like table_alone(), with a key-value table."""
        return self._alone("a cluster of one", [self.programs / "key_worker"])

    def dtype_adder(self):
        """Like table_alone(), with arrays of every dtype."""
        return self._alone("a cluster of one", [self.programs / "dtype_worker"])

    def small_calls(self):
        """Calls on four rows or keys in C, for those of caller()."""
        return self._alone("small_calls", [self.programs / "small_calls"])

    def caller(self, interpreter):
        """Like table_alone(), from another language. Python is the one that runs this: the module was built for it."""
        suffix = {"python3": "py", "perl": "pl"}.get(interpreter, "lua")
        program = sys.executable if interpreter == "python3" else interpreter
        return self._alone(interpreter, [program, self.sources / "programs" / f"caller.{suffix}"])

    def table_over_tcp(self, pinning):
        """One worker and one server, started by `polyverso run`. Standard input goes to the worker."""
        return self.worker("table_worker", pinning, "tcp")

    def table_encrypted(self, pinning):
        """Like table_over_tcp(), encrypted with a key from the run's secret."""
        return self.worker("table_worker", pinning, "tcp", "psk")

    def worker(self, program, pinning, transport="auto", tls="off"):
        """Like table_over_tcp(), with another program, and by default over the fastest available transport."""
        command = [*self.run_words(1, transport, tls), "taskset", "--cpu-list", pinning.client, self.programs / program]
        return started(lambda: Process("polyverso run", command, pinning.server, self.environment))

    def run_words(self, workers, transport="tcp", tls="off"):
        """The launcher's arguments for `workers` workers and one server; the workers' command follows."""
        return [self.launcher, "run", "--no-color", "-v", "--set", f"transport={transport}", "--tls", tls, "-n", workers, "--servers", 1, "--"]

    # ------------------------------------------------------------------ peers

    def memcpy(self):
        return self._alone("memcpy", [self.programs / "memcpy"])

    def row_loop(self):
        """A loop over rows of a matrix in the process's own memory."""
        return self._alone("row_loop", [self.programs / "row_loop"])

    def absl_map(self):
        """Like keys_alone(), with an absl::flat_hash_map."""
        return self._alone("absl_map", [self.programs / "absl_map"])

    def redis(self, pinning, program=REDIS, name="redis-server"):
        """A server of Redis or Valkey without persistence, and its client, on a unix socket."""
        folder = tempfile.TemporaryDirectory(prefix="polyverso-bench-")
        socket, link = pathlib.Path(folder.name) / "socket", pathlib.Path(folder.name) / name
        link.symlink_to(program)
        words = [link, "--port", 0, "--unixsocket", socket, "--dir", folder.name, "--save", "", "--appendonly", "no"]
        server = Process(name, words, pinning.server)
        client = [self.programs / "redis_worker", socket]
        return started(lambda: Process("redis_worker", client, pinning.client), [server, Folder(folder)])

    def raw_socket(self, pinning):
        return self._with_server("raw_socket", pinning)

    def uv_echo(self, pinning):
        return self._with_server("uv_echo", pinning)

    def _alone(self, name, command):
        return started(lambda: Process(name, command, self.one_cpu.client, self.environment))

    def _with_server(self, program, pinning):
        path = self.programs / program
        server = Process(f"{program} server", [path, "server"], pinning.server)
        try:
            port = server.hear()["port"]
        except (Broken, KeyError):
            server.end(seconds=1)
            raise
        return started(lambda: Process(f"{program} client", [path, "client", port], pinning.client), [server])
