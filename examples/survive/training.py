"""One training: rank 0 of a cluster with four workers in three languages and three servers. Hands out steps, measures the loss, and kills.

    training.py --seconds 60 --every 5 --seed 1 --result FILE      every 5 s, a server or a worker is killed with kill -9
    training.py --seconds 60 --every 0 --result FILE               the same training, undisturbed

This process starts the others. It tells each worker, line by line, which step is next: 25 a second, and when a worker is behind, as soon
as it has the last one done. A fresh process takes the place of a dead one. So both trainings take the same steps, whatever happens.
FILE gets what was seen, as JSON.
"""

import argparse
import json
import os
import pathlib
import random
import selectors
import socket
import subprocess
import sys
import threading
import time
from typing import Any

import polyverso

from train import DIGITS, PIXELS, PLACES, loss, read_images

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from jobs import Failure, find  # noqa: E402: in the folder above

SERVERS = 3
STEPS_A_SECOND = 25  # of each worker
PATIENCE_S = 60  # for a process that shall join or end, and for steps that are late


class Process:
    """A server or a worker that this one has started, and its rank."""

    def __init__(self, rank: int, name: str, command: list[str], environment: dict[str, str], folder: pathlib.Path) -> None:
        self.name = name
        self.errors = folder / f"rank-{rank}.err"
        with open(self.errors, "w", encoding="utf-8") as errors:
            self.popen = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True)

    def said(self) -> str:
        """On standard error."""
        return self.errors.read_text(encoding="utf-8", errors="replace")

    def end(self) -> None:
        """kill -9"""
        self.popen.kill()
        self.popen.wait()
        for pipe in (self.popen.stdin, self.popen.stdout):
            if pipe:
                pipe.close()


class Place:
    """A worker's place in the cluster: its column among the counters, and its steps."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.lives = 0
        self.language = ""
        self.is_ready = False
        self.at: float | None = None  # when the step was handed out that is not acknowledged yet
        self.steps = self.acknowledged = self.unknown = 0  # steps handed out; unknown: their worker was killed before it could tell

    @property
    def name(self) -> str:
        return f"worker {self.number + 1} ({self.language})"


class Training:
    def __init__(self, seconds: float, every: float, seed: int, folder: pathlib.Path) -> None:
        self.seconds, self.every, self.folder = seconds, every, folder
        self.random = random.Random(seed)
        lua = find("luajit", "lua5.4", "lua")
        self.languages = [("Perl", find("perl"), "train.pl"), ("Python", sys.executable, "train.py"), ("Lua", lua, "train.lua")]
        self.places = [Place(number) for number in range(PLACES)]
        self.steps = round(seconds * STEPS_A_SECOND)  # of each worker
        self.losses: list[tuple[float, float]] = []  # (seconds since the beginning, loss)
        self.calls: list[tuple[float, float]] = []  # of each acknowledged step: handed out, acknowledged
        self.kills: list[dict[str, object]] = []
        self.victims: list[int] = []  # ranks of the next ones, the last one first
        self.processes: dict[int, Process] = {}  # by rank
        self.whole_with: list[int] = []  # see pids(): with these, all had joined and each part of the table had its copy
        self.over = threading.Event()
        self.selector = selectors.DefaultSelector()

    # ---- the processes

    def start(self) -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        address = "127.0.0.1:%d" % listener.getsockname()[1]
        self.settings: dict[str, Any] = {"master": address, "nodes": 1 + PLACES + SERVERS, "secret": os.urandom(16).hex(), "replicas": 1}
        for place in self.places:
            self.start_worker(place)
        for number in range(SERVERS):
            self.start_server(number)
        os.environ["POLYVERSO_LISTEN_FD"] = str(listener.detach())  # as under `polyverso run`: the node has this socket from now on
        self.node = polyverso.init(rank=0, role="worker", log_level="error", **self.settings)
        del os.environ["POLYVERSO_LISTEN_FD"]
        self.table = self.node.matrix(PIXELS + 1, DIGITS + PLACES, name="weights")

    def environment(self, rank: int, role: str) -> dict[str, str]:
        settings = {f"POLYVERSO_{name.upper()}": str(value) for name, value in {**self.settings, "rank": rank, "role": role}.items()}
        return {**os.environ, **settings, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}

    def start_worker(self, place: Place) -> None:
        """Each life of a worker is in another language."""
        place.language, interpreter, script = self.languages[(place.number + place.lives) % 3]
        place.lives += 1
        place.is_ready, place.at = False, None
        rank = 1 + place.number
        command = [interpreter, str(HERE / script), str(place.number)]
        process = self.processes[rank] = Process(rank, place.name, command, self.environment(rank, "worker"), self.folder)
        assert process.popen.stdout
        self.selector.register(process.popen.stdout, selectors.EVENT_READ, place)

    def start_server(self, number: int) -> None:
        rank = 1 + PLACES + number
        self.processes[rank] = Process(rank, f"server {number}", [find("polyverso"), "server"], self.environment(rank, "server"), self.folder)

    def pids(self) -> list[int]:
        return [process.popen.pid for _, process in sorted(self.processes.items())]

    # ---- meanwhile, in a thread of its own: these calls may take longer while a server is being replaced

    def observe(self) -> None:
        inputs, labels = read_images()
        while not self.over.wait(0.1):
            weights = self.table.get()
            self.losses.append((self.now(), loss(weights[:, :DIGITS], inputs, labels)))
            status = self.node.status()
            here = [member["pid"] for member in status["members"][1:] if member["state"] == "here"]
            if all(part["backup"] is not None for part in status["parts"]):
                self.whole_with = here

    def now(self) -> float:
        return time.monotonic() - self.begun

    # ---- steps

    def hand_out(self) -> None:
        """A step to each worker that has none under way, if the next one is due."""
        for place in self.places:
            if place.is_ready and place.at is None and place.steps < min(self.steps, self.now() * STEPS_A_SECOND):
                pipe = self.processes[1 + place.number].popen.stdin
                assert pipe
                place.at = self.now()
                print(place.steps * PLACES + place.number, file=pipe, flush=True)
                place.steps += 1

    def listen(self, seconds: float) -> None:
        for key, _ in self.selector.select(seconds):
            place = key.data
            pipe = self.processes[1 + place.number].popen.stdout
            assert pipe
            line = pipe.readline()
            if not line:
                self.selector.unregister(pipe)
                self.ended(1 + place.number)
                continue
            if place.at is not None:
                place.acknowledged += 1
                self.calls.append((place.at, self.now()))
            place.is_ready, place.at = True, None

    # ---- kills

    def kill_one(self) -> None:
        """A server and a worker in turn."""
        if not self.victims:
            kinds = [[1 + number for number in range(PLACES)], [1 + PLACES + number for number in range(SERVERS)]]
            for ranks in kinds:
                self.random.shuffle(ranks)
            self.victims = [rank for pair in zip(*kinds) for rank in pair]
        rank = self.victims[-1]
        victim = self.processes[rank]
        place = self.places[rank - 1] if rank <= PLACES else None
        if place and place.at is None:
            return  # a worker is killed in the middle of a step
        if place:
            assert victim.popen.stdout
            self.selector.unregister(victim.popen.stdout)
            time.sleep(self.random.uniform(0, 0.004))
        self.victims.pop()
        self.kills.append({"at": self.now(), "who": victim.name})
        victim.end()
        if place:
            place.unknown += 1  # it may have been acknowledged without our having heard of it
            self.start_worker(place)
        else:
            self.start_server(rank - 1 - PLACES)
        self.tell(f"kill -9 of {victim.name}; a new process, {self.processes[rank].name}, takes its place")

    def tell(self, text: str) -> None:
        loss_now = f"loss {self.losses[-1][1]:.4f}" if self.losses else ""
        print(f"{self.now():5.1f} s  {loss_now}  {sum(place.acknowledged for place in self.places):5} steps  {text}", flush=True)

    def look_after(self) -> None:
        is_whole = self.whole_with == self.pids()
        if is_whole and self.kills and "whole" not in self.kills[-1]:
            self.kills[-1]["whole"] = self.now()
        due = self.every > 0 and self.now() >= self.every * (len(self.kills) + 1) and self.now() < self.seconds
        if due and is_whole:
            self.kill_one()
        for rank, process in self.processes.items():
            if rank > PLACES and process.popen.poll() is not None:
                self.ended(rank)

    def ended(self, rank: int) -> None:
        """A process that nobody killed. One that came before the loss of its predecessor was noticed was told so, and comes again."""
        process = self.processes[rank]
        status, said = process.popen.wait(), process.said()
        if not self.kills or "already complete, and none of its" not in said:
            raise Failure(f"{process.name} ended with status {status}: {said}")
        self.start_worker(self.places[rank - 1]) if rank <= PLACES else self.start_server(rank - 1 - PLACES)

    # ---- all of it

    def run(self) -> dict[str, object]:
        self.start()
        while not all(place.is_ready for place in self.places):
            self.listen(1)
        self.begun = time.monotonic()
        observer = threading.Thread(target=self.observe)
        observer.start()
        while any(place.acknowledged + place.unknown < self.steps for place in self.places):
            if self.now() > self.seconds + PATIENCE_S:
                raise Failure(f"some steps were not made within {self.now():.0f} s")
            self.hand_out()
            self.look_after()
            self.listen(0.005)
        self.over.set()
        observer.join()
        weights = self.table.get()
        final = loss(weights[:, :DIGITS], *read_images())
        for place in self.places:
            pipe = self.processes[1 + place.number].popen.stdin
            assert pipe
            pipe.close()
        self.node.shutdown()
        for process in self.processes.values():
            if process.popen.wait(PATIENCE_S) != 0:
                raise Failure(f"{process.name} ended with status {process.popen.returncode}: {process.said()}")
        counters = weights[:, DIGITS:]
        return {
            "seconds": self.now(), "losses": self.losses, "final": final, "calls": self.calls, "kills": self.kills,
            "places": [
                {"handed_out": place.steps, "acknowledged": place.acknowledged, "unknown": place.unknown, "lives": place.lives,
                 "least": int(counters[:, place.number].min()), "most": int(counters[:, place.number].max())}
                for place in self.places
            ],
        }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--every", type=float, default=5, help="seconds between kills; 0: none")
    parser.add_argument("--seed", type=int, default=1, help="chooses the victims")
    parser.add_argument("--result", type=pathlib.Path, required=True, help="a file, in a folder that also gets what the others say on standard error")
    options = parser.parse_args()
    training = Training(options.seconds, options.every, options.seed, options.result.parent)
    try:
        options.result.write_text(json.dumps(training.run()))
    except Failure as failure:
        print(f"failed: {failure}", file=sys.stderr)
        return 1
    finally:
        for process in training.processes.values():
            process.end()
    return 0


if __name__ == "__main__":
    sys.exit(main())
