"""The plan of a run, drawn from a seed: the cluster, the commands of its members, and the faults."""

import dataclasses
import random
import re
import sys

COMMANDS = {
    "c": ["soak_member"],
    "python": [sys.executable, "-B", "member.py"],
    "perl": ["perl", "member.pl"],
    "lua5.1": ["lua5.1", "member.lua"],
    "luajit": ["luajit", "member.lua"],
    "lua5.4": ["lua5.4", "member.lua"],
    "server": ["polyverso", "server"],  # reads no commands
}
HEARTBEAT = 2.0  # seconds


@dataclasses.dataclass
class Fault:
    """A fault. It happens `after` seconds after this share of all commands has started."""

    kind: str  # kill, stop, scribble; launcher: kill it
    rank: int
    share: float
    after: float
    span: float = 0.0  # duration of a stop

    @property
    def is_loss(self):
        """Whether the others lose the process."""
        return self.kind != "stop" or self.span > HEARTBEAT

    def __str__(self):
        whom = "the launcher" if self.kind == "launcher" else f"rank {self.rank}"
        return f"{'kill' if self.kind == 'launcher' else self.kind} {whom} at {self.share:.2f}" + (f" for {self.span:.2f} s" if self.span else "")


class Plan:
    def __init__(self, seed):
        self.seed = seed
        dice = self.dice = random.Random(seed)
        self.start = dice.choice(["direct", "direct", "run", "run --keep-going", "run --keep-going"])
        self._draw_roles()
        self.transport = dice.choice(["auto", "auto", "tcp"])
        self.has_secret = dice.random() < 0.5 or self.start != "direct"
        self.vandal = dice.random() < 0.4
        self.features = [name for name in ("tables", "store", "group", "gossip") if dice.random() < 0.6] or [dice.choice(["tables", "group"])]
        width = len(self.workers)
        self.sizes = {}
        self.tables = []
        if "tables" in self.features:
            for name in ["t", "u", "v"][: dice.randint(1, 3)]:
                kind = dice.choice(["array", "array", "keyvalue"])
                consistency = dice.choice(["async", "async", "sync", "stale", "merge"])
                self.tables.append((name, kind, consistency, width * dice.choice([3, 20, 1500] if kind == "array" else [3, 40])))
        self.store = (dice.choice(["dist_sync", "dist_sync", "dist_async", "dist_async", "local", "device"]), width * dice.choice([2, 10, 1500]))
        self.rounds = [self._draw_round() for _ in range(dice.randint(4, 14))]
        self._draw_faults()

    def _draw_roles(self):
        """Draws the roles and members, by rank."""
        dice = self.dice
        workers = dice.randint(1, 4)
        servers = dice.randint(0 if workers > 1 else 1, 5 - workers)
        if self.start == "direct":
            self.roles = ["worker" if servers and dice.random() < 0.7 else "all" for _ in range(workers)] + ["server"] * servers
            dice.shuffle(self.roles)  # the master may be any process
        else:
            self.roles = ["worker" if servers else "all"] * workers + ["server"] * servers
        names = [name for name in COMMANDS if name != "server"]
        self.members = []
        for role in self.roles:
            is_command = role == "server" and (self.start != "direct" or dice.random() < 0.5)
            self.members.append("server" if is_command else dice.choice(names))
        self.workers = [rank for rank, role in enumerate(self.roles) if role != "server"]
        self.servers = [rank for rank, role in enumerate(self.roles) if role != "worker"]

    def _draw_round(self):
        """The commands of one round, with a placeholder {worker}, the same for every worker."""
        dice, commands = self.dice, []
        parts = list(self.features)
        dice.shuffle(parts)
        for part in parts:
            if part == "tables":
                for name, _, consistency, _ in self.tables:
                    commands += [f"add {name} {{worker}} {dice.choice(['wait', 'wait', 'async'])}" for _ in range(dice.randint(1, 3))]
                    if consistency == "stale":
                        commands.append(f"clock {name}")
                    if consistency == "sync" or dice.random() < 0.6:
                        commands.append(f"get {name}")
                if dice.random() < 0.3:
                    commands.append("wait")
            elif part == "store":
                commands += ["push {worker}"] * dice.randint(1, 2) + ["pull"]
            elif part == "group":
                commands += [f"reduce {dice.choice([1, 100, 5000, 200_000])}" for _ in range(dice.randint(1, 4))]
                if dice.random() < 0.2:
                    commands.append(f"elastic {dice.randint(1, 6)}")
            elif part == "gossip":
                commands += ["step"] * dice.randint(1, 2)
        if dice.random() < 0.1:
            commands.append("status")
        return commands

    def _draw_faults(self):
        dice = self.dice
        self.faults = []
        for _ in range(dice.choice([0, 1, 1, 1, 1, 2])):
            kind = dice.choice(["kill", "kill", "kill", "stop", "stop", "scribble", "launcher"])
            if kind == "launcher" and self.start == "direct":
                kind = "kill"
            fault = Fault(kind, dice.randrange(len(self.roles)), dice.uniform(0, 1.02), dice.choice([0, dice.uniform(0, 0.005)]))
            if kind == "stop":
                fault.span = dice.choice([dice.uniform(0.02, 0.6), dice.uniform(0.02, 0.6), HEARTBEAT + 1.5])
            self.faults.append(fault)
        if self.start == "run" and len(self.faults) > 1:
            del self.faults[1:]

    # ------------------------------------------------------------------ commands

    def setup(self, worker):
        commands = ["init"]
        width = len(self.workers)
        commands += [f"table {name} {kind} {consistency} {size} {width}" for name, kind, consistency, size in self.tables]
        if "store" in self.features:
            commands.append(f"store {self.store[0]} {self.store[1]} {width}")
        if "group" in self.features:
            commands.append("group")
        if "gossip" in self.features:
            commands.append(f"gossip g{worker} {worker}")
        return commands

    def work(self, worker):
        commands = [command.format(worker=worker) for each in self.rounds for command in each] + ["wait"]
        return commands + [f"get {name}" for name, _, consistency, _ in self.tables if consistency == "merge"]

    def ending(self):
        """The final reads, when no worker adds any more."""
        return [f"look {name}" for name, *_ in self.tables] + (["pull"] if "store" in self.features else [])

    def count(self):
        """The number of all commands."""
        return sum(len(self.setup(0)) + len(self.work(0)) + len(self.ending()) + 1 for _ in self.workers)

    # ------------------------------------------------------------------ names

    def names(self, rank):
        """The names of a rank in messages."""
        names = {f"rank {rank}"} | ({"the master"} if rank == 0 else set())
        if rank in self.workers:
            names.add(f"worker {self.workers.index(rank)}")
        if rank in self.servers:
            names.add(f"server {self.servers.index(rank)}")
        return names

    def __str__(self):
        members = " ".join(f"{role}:{member}" for role, member in zip(self.roles, self.members))
        tables = ", ".join(f"{consistency} {kind} of {size}" for _, kind, consistency, size in self.tables)
        told = {"tables": tables, "store": f"{self.store[0]} store of {self.store[1]}"}
        features = [told.get(name, name) for name in self.features]
        faults = "; ".join(map(str, self.faults)) or "no fault"
        more = ("" if self.has_secret else ", no secret") + (", a vandal at the ports" if self.vandal else "")
        return f"{self.start}: {members}; transport={self.transport}{more}; {', '.join(features)}; {faults}"


def named_in(text):
    """The names {"worker 1", "rank 0", ...} that occur in a message."""
    found = {"the master"} if "the master at " in text else set()  # a joining process knows no other name of it
    for kind, numbers in re.findall(r"\b(worker|server|rank)s? (\d+(?:(?:, | and )\d+)*)", text):
        found.update(f"{kind} {number}" for number in re.findall(r"\d+", numbers))
    return found
