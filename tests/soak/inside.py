"""One run of soak.py, in its own namespaces: inside.py SEED [--keep]"""

import errno
import os
import re
import select
import signal
import subprocess
import sys
import time

from plan import COMMANDS, HEARTBEAT, Plan, named_in
from vandal import Vandal, scribble

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [os.path.join(TESTS, "cluster"), TESTS]
from nodes import Cluster  # noqa: E402

PLACE = "/mnt/soak"
TREE = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
INIT_MS = 20000
PROMISED = 12.0  # seconds within which every call ends: the heartbeat's limit, and a margin for a busy machine
STARTED = time.monotonic()
GONE = 6.0  # seconds from the end of the run until all processes have ended


def mount():
    """Mounts empty folders in all places where files might be left behind. The tree itself may be in one of them."""
    tree = os.open(TREE, os.O_PATH)
    for folder in ("/tmp", "/dev/shm", "/mnt"):
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", folder], check=True)
    if not os.path.isdir(TREE):
        os.makedirs(TREE)
        subprocess.run(["mount", "--no-canonicalize", "--bind", f"/proc/{os.getpid()}/fd/{tree}", TREE], check=True)
    os.close(tree)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    for folder in (PLACE, PLACE + "/run"):
        os.mkdir(folder, 0o700)
    os.environ.update(SOAK=PLACE, XDG_RUNTIME_DIR=PLACE + "/run", TMPDIR="/tmp", PYTHONDONTWRITEBYTECODE="1", OMP_NUM_THREADS="1")


class Member:
    """A process of the cluster, with its FIFOs and its answers."""

    def __init__(self, rank, language):
        self.rank, self.language = rank, language
        self.pid = 0
        self.calls = {}  # by number: [command, time of its start, time of its end, "ok" | "error" | "skip", the rest]
        self.sent = 0
        self.lines = []
        self.heard = 0.0  # the time of its last output
        self.at = None  # the last call that it has started
        self.pending = b""
        self.is_lost = False  # for the others: killed, stopped for long, or with overwritten memory
        self.is_dead = False
        self.ways = None
        if language != "server":
            for name in ("in", "out"):
                os.mkfifo(f"{PLACE}/{name}-{rank}")
            self.ways = [os.open(f"{PLACE}/{name}-{rank}", os.O_RDWR | os.O_NONBLOCK) for name in ("in", "out")]

    @property
    def has_answered(self):
        return sum(call[2] is not None for call in self.calls.values()) == self.sent

    def send(self, commands):
        if self.ways is None:
            return
        for command in commands:
            self.sent += 1
            self.calls[self.sent] = [command, None, None, None, ""]
            line = f"{self.sent} {command}\n".encode()
            while line:
                try:
                    line = line[os.write(self.ways[0], line) :]
                except BlockingIOError:
                    if self.is_dead:
                        return
                    time.sleep(0.002)

    def read(self, now):
        """Reads its output. Returns the number of commands that it has started since."""
        try:
            self.pending += os.read(self.ways[1], 1 << 16)
        except BlockingIOError:
            return 0
        *lines, self.pending = self.pending.split(b"\n")
        begun = 0
        self.heard = now
        for line in lines:
            text = line.decode(errors="replace")
            self.lines.append(f"{now - STARTED:7.3f} {text}")
            number, word, *rest = text.split(" ", 2)
            call = self.calls.get(int(number))
            if call is None:
                continue
            if word == "begin":
                begun += 1
                self.at = call
                call[1] = now
            elif word != "again":
                call[2:] = [now, word, rest[0] if rest else ""]
        return begun


class Run:
    def __init__(self, plan):
        self.plan = plan
        self.problems = []
        self.faults = list(plan.faults)
        self.due = []  # (time, action): ends of stops, and delayed faults
        self.begun = 0
        self.stopped = 0.0  # seconds, the sum of all stops
        self.launcher = None
        self.is_over = False  # the launcher ends the remaining processes
        self.members = [Member(rank, language) for rank, language in enumerate(plan.members)]
        self.log = {}

    def problem(self, text):
        if len(self.problems) < 20:
            self.problems.append(text)

    # ------------------------------------------------------------------ start

    def begin(self):
        plan = self.plan
        settings = dict(heartbeat_timeout_ms=int(HEARTBEAT * 1000), init_timeout_ms=INIT_MS, transport=plan.transport)
        if any(fault.kind == "scribble" for fault in plan.faults):  # random bytes can have any effect, including a hang
            settings.update(timeout_ms=4000, gate_timeout_ms=6000)
        if plan.start == "direct":
            # Cluster assigns the first ranks to workers; here the roles have any order.
            job = Cluster(len(plan.members), 0, **settings, **({} if plan.has_secret else {"secret": None}))
            for rank, member in enumerate(self.members):
                node = job.start(rank, COMMANDS[member.language], role=plan.roles[rank])
                member.pid, self.log[rank] = node.process.pid, node
            self.job = job
            return
        workers = [COMMANDS[self.members[rank].language] for rank in plan.workers]
        command = ["polyverso", "run", "--no-color", *plan.start.split()[1:], "--servers", str(plan.roles.count("server"))]
        for key, value in settings.items():
            command += ["--set", f"{key}={value}"]
        for place, each in enumerate(workers):
            command += ["---" if place else "--", *each]
        with open(PLACE + "/log", "wb") as log:
            self.launcher = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        deadline = time.monotonic() + PROMISED
        while any(member.pid == 0 for member in self.members):
            self.find_processes()
            if time.monotonic() > deadline:
                raise RuntimeError(f"the launcher has not started all members: {self.said()}")
            time.sleep(0.002)

    def find_processes(self):
        for pid in processes():
            try:
                with open(f"/proc/{pid}/environ", "rb") as file:
                    found = re.search(rb"(?:^|\0)POLYVERSO_RANK=(\d+)\0", file.read())
                if found and os.getpgid(pid) == pid:
                    self.members[int(found[1])].pid = pid
            except OSError:
                continue

    # ------------------------------------------------------------------ faults

    def inject(self, fault, now):
        member = self.members[fault.rank]
        if fault.kind == "launcher":
            self.launcher.kill()
            self.is_over = True
            return
        if member.is_dead:
            return
        if fault.kind == "kill":
            self.lose(member)
            send_signal(member.pid, signal.SIGKILL)
        elif fault.kind == "stop":
            if fault.is_loss and self.has_joined(member):  # before it has joined, it has no heartbeat limit
                self.lose(member)
            send_signal(member.pid, signal.SIGSTOP)
            self.stopped += fault.span
            self.due.append((now + fault.span, lambda: send_signal(member.pid, signal.SIGCONT)))
        else:
            self.lose(member)
            for turn in range(20):
                self.due.append((now + turn * 0.02, lambda: self.scribble_over(member)))
            self.due.append((now + 0.4 + self.plan.dice.uniform(0, 0.6), lambda: send_signal(member.pid, signal.SIGKILL)))

    def scribble_over(self, member):
        try:
            scribble(member.pid, self.plan.dice, 100)
        except OSError:
            pass  # the damage has killed it

    def lose(self, member):
        member.is_lost = True
        if self.plan.start == "run":
            self.is_over = True

    def look_after_faults(self, now):
        share = self.begun / self.plan.count()
        for fault in [each for each in self.faults if share >= each.share]:
            self.faults.remove(fault)
            self.due.append((now + fault.after, lambda fault=fault: self.inject(fault, time.monotonic())))
        for each in [one for one in self.due if one[0] <= now]:
            self.due.remove(each)
            each[1]()

    # ------------------------------------------------------------------ the run

    def turn(self):
        """Reads the output of the members, and waits for it for up to 10 ms."""
        ways = {member.ways[1]: member for member in self.members if member.ways is not None}
        ready, _, _ = select.select(list(ways), [], [], 0.01)
        now = time.monotonic()
        for way in ready:
            self.begun += ways[way].read(now)
        self.look_after_faults(now)
        for member in self.members:
            if not member.is_dead and not is_running(member.pid):
                member.is_dead = True
                if member.ways is not None:
                    self.begun += member.read(now)
        reap(self.own_children())
        return now

    def own_children(self):
        children = {node.process.pid for node in self.log.values()}
        return children | {self.launcher.pid} if self.launcher else children

    def living(self, ranks=None):
        """The members that the others have not lost."""
        return [member for member in self.members if not member.is_dead and not member.is_lost and (ranks is None or member.rank in ranks)]

    def wait_for(self, what, members):
        """Waits until these members have answered all of their commands, or are dead. Reports slow calls."""
        begun = time.monotonic()
        while not self.is_over and any(not member.has_answered and not member.is_dead for member in members):
            now = self.turn()
            for member in members:
                if member.is_dead or member.ways is None:
                    continue
                command = member.at[0] if member.at else "the beginning"
                allowed = PROMISED + self.stopped + (INIT_MS / 1000 if command in ("the beginning", "init") else 0)
                silence = now - max(member.heard, begun)
                if silence > allowed and not member.has_answered:
                    self.problem(f"{what}: rank {member.rank} ({member.language}) has been in {command!r} for {silence:.1f} s")
                    return False
        return True

    def go(self):
        plan = self.plan
        workers = [self.members[rank] for rank in plan.workers]
        for member in self.members:
            if member.rank in plan.workers:
                member.send(plan.setup(plan.workers.index(member.rank)))
            else:
                member.send(["init", "shutdown"])
        everything = self.wait_for("setup", workers)
        for member in workers:
            worker = plan.workers.index(member.rank)
            ports = [(plan.workers.index(other.rank), self.result_of(other, "gossip")) for other in workers if other is not member]
            member.send([f"peer g{other} {port}" for other, port in ports if port])
            if everything:
                member.send(plan.work(worker))
        everything = everything and self.wait_for("work", workers)
        while everything and not self.is_over and self.due:  # stopped processes continue
            self.turn()
        survivors = self.living(plan.workers)
        if everything and "group" in plan.features and any(member.is_lost for member in workers):
            if survivors and all(self.result_of(member, "group") is not None for member in survivors):
                for member in survivors:
                    member.send(["shrink", "reduce 100"])
        for member in survivors:
            member.send(plan.ending())
        everything = everything and self.wait_for("the end", workers)
        for member in self.members:
            member.send((["shutdown"] if member in workers else []) + ["quit"])
        allowed = PROMISED + self.stopped + (0 if self.is_complete() else INIT_MS / 1000)
        deadline = time.monotonic() + allowed
        while any(not member.is_dead for member in self.members) or (self.launcher and self.launcher.poll() is None):
            if self.turn() > deadline:
                slow = [f"rank {member.rank} ({member.language})" for member in self.members if not member.is_dead]
                self.problem(f"the end: {', '.join(slow) or 'the launcher'} still runs {allowed:.0f} s after the last command")
                break
        return everything

    def result_of(self, member, name):
        """The result of the last command of this name, if it succeeded."""
        found = [call for call in member.calls.values() if call[0].split()[0] == name]
        return found[-1][4] if found and found[-1][3] == "ok" else None

    # ------------------------------------------------------------------ the checks

    def judge(self):
        # If a process is killed during start-up, the cluster is complete for some members, while others leave and count
        # as lost.
        lost = {name for member in self.members if member.is_lost for name in self.plan.names(member.rank)}
        if lost:
            lost |= {name for member in self.members if not self.has_joined(member) for name in self.plan.names(member.rank)}
        elif not self.is_over and not self.is_complete():
            self.problem("the cluster has not come together")
        for member in self.members:
            if member.is_lost or (self.is_over and not member.calls):
                continue
            for line in member.lines:
                _, number, word, *rest = line.split(None, 3)
                if word in ("error", "again") and not (self.is_over and self.launcher and not lost):
                    if re.search(r"call \S*init\(\) first", rest[0]) and not self.has_joined(member):
                        continue  # it has already reported why it could not join
                    if "has begun to shrink the group" in rest[0]:
                        continue  # docs/groups.md: a slower rank may learn of it in the operation before
                    named = named_in(rest[0])
                    if not named or not (named & lost or self.is_overwritten()):
                        command = member.calls[int(number)][0]
                        self.problem(f"rank {member.rank} ({member.language}): {command}: names no lost process: {rest[0]}")
        if not self.is_over:
            self.judge_endings()
        if not self.is_overwritten():
            self.judge_sums()
            self.judge_values()

    def is_overwritten(self):
        """Whether a member's random bytes may have reached the others. Then neither values nor the first reported error
        prove anything."""
        return any(fault.kind == "scribble" and self.members[fault.rank].is_lost for fault in self.plan.faults)

    def judge_endings(self):
        for member in self.members:
            if member.is_lost:
                continue
            status = self.status_of(member)
            had_error = any(call[3] == "error" for call in member.calls.values())
            no_master = self.members[0].is_lost
            is_excused = (status == 1 and had_error) or (member.language == "server" and (no_master or not self.is_complete()))
            if status not in (None, 0) and not is_excused:
                self.problem(f"rank {member.rank} ({member.language}) has ended with {status}")
            if member.sent and not member.has_answered:
                left = [call[0] for call in member.calls.values() if call[2] is None and call[0] != "quit"]
                if left:
                    self.problem(f"rank {member.rank} ({member.language}) never answered {left[0]!r}")
        if self.launcher is not None and self.launcher.poll() != 0 and not any(member.is_lost for member in self.members):
            self.problem(f"the launcher has ended with {self.launcher.poll()}")

    def status_of(self, member):
        """The exit status; None if it still runs, or is not a child of this process."""
        if member.rank not in self.log or not member.is_dead:
            return None
        return self.log[member.rank].process.wait(GONE)  # its other threads may end after the main thread

    def has_joined(self, member):
        if member.language != "server":
            return self.result_of(member, "init") is not None
        if member.rank in self.log:
            node = self.log[member.rank]
            node.forget()
            return not any("can't join" in line for line in node.lines)
        with open(PLACE + "/log", encoding="utf-8", errors="replace") as log:
            return f"[s{self.plan.servers.index(member.rank)}] polyverso server: can't join" not in log.read()

    def is_complete(self):
        """Whether all members have joined."""
        return all(self.has_joined(member) for member in self.members)

    def tally(self, name, worker):
        """(acknowledged, started) adds or pushes of a worker."""
        member = self.members[self.plan.workers[worker]]
        command = f"push {worker}" if name == "store" else f"add {name} "
        calls = [call for call in member.calls.values() if call[0].startswith(command)]
        return sum(call[3] == "ok" for call in calls), sum(call[1] is not None and call[3] != "skip" for call in calls)

    def pulled(self, worker):
        """The number of a worker's pushes that are surely applied: those before a pull of its own."""
        member = self.members[self.plan.workers[worker]]
        pulls = [number for number, call in member.calls.items() if call[0] == "pull" and call[3] == "ok"]
        return sum(number < max(pulls, default=0) and call[0].startswith("push ") and call[3] == "ok" for number, call in member.calls.items())

    def judge_sums(self):
        """Checks the final values that the survivors have read."""
        plan = self.plan
        for member in self.living_at_the_end():
            for number in sorted(member.calls)[-len(plan.ending()) - 2 :]:
                command, _, _, word, rest = member.calls[number]
                name = command.split()[-1] if command.startswith("look ") else "store" if command == "pull" else None
                if name is None:
                    continue
                if word == "error" and all(other.rank not in plan.servers for other in self.members if other.is_lost or not self.has_joined(other)):
                    self.problem(f"rank {member.rank}: {command}: {rest}, though no server is lost")
                if word != "ok" or (name == "store" and not plan.store[0].startswith("dist")):
                    continue
                for worker, (least, most) in enumerate(pairs(rest)):
                    acknowledged, begun = self.tally(name, worker)
                    if name == "store" and worker != plan.workers.index(member.rank):
                        acknowledged = self.pulled(worker)
                    if not acknowledged <= least <= most <= begun:
                        told = f"{acknowledged} of {begun} were acknowledged"
                        self.problem(f"rank {member.rank} reads {least:g} .. {most:g} of worker {worker}'s adds to {name}, of which {told}")

    def living_at_the_end(self):
        return [self.members[rank] for rank in self.plan.workers if not self.members[rank].is_lost and not self.is_over]

    def judge_values(self):
        """Checks the values that each member has read during the run."""
        centres = {}
        for member in self.members:
            if member.rank not in self.plan.workers:
                continue
            worker = self.plan.workers.index(member.rank)
            for number, (command, _, _, word, rest) in member.calls.items():
                name, *arguments = command.split()
                if word != "ok":
                    continue
                if name in ("get", "pull"):
                    thing = arguments[0] if arguments else "store"
                    mine = f"push {worker}" if name == "pull" else f"add {thing} "
                    earlier = [call for other, call in member.calls.items() if other < number and call[0].startswith(mine) and call[3] != "skip"]
                    least, most = pairs(rest)[worker]
                    if not sum(call[3] == "ok" for call in earlier) <= least <= most <= len(earlier):
                        self.problem(f"rank {member.rank}: {command} gives {least:g} .. {most:g} after {len(earlier)} adds of its own")
                elif name == "reduce":
                    ranks, least, most = map(float, rest.split())
                    if not ranks == least == most:
                        self.problem(f"rank {member.rank}: {command} gives {least:g} .. {most:g} on {ranks:g} ranks")
                elif name == "elastic":
                    centres.setdefault(number, set()).add(rest)
                elif name == "step":
                    _, least, most = map(float, rest.split())
                    if not -1e-6 <= least <= most <= len(self.plan.workers) - 1 + 1e-6 or most - least > 1e-5:
                        self.problem(f"rank {member.rank}: a model of {least:g} .. {most:g}")
        for number, found in centres.items():
            if len(found) > 1 and not any(member.is_lost for member in self.members):
                self.problem(f"command {number}: the centres differ: {sorted(found)}")

    # ------------------------------------------------------------------ leftovers

    def judge_rest(self):
        deadline = time.monotonic() + GONE
        while left := [pid for pid in processes() if is_running(pid)]:
            if time.monotonic() > deadline:
                break
            reap(set())
            time.sleep(0.01)
        if left:
            self.problem("left behind: " + "; ".join(f"{pid}: {command_of(pid)}" for pid in left))
        if self.launcher is not None and self.launcher.poll() == -signal.SIGKILL:  # `polyverso status` removes its file
            subprocess.run(["polyverso", "status"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=30, check=False)
        for folder in ("/tmp", "/dev/shm", PLACE + "/run"):
            files = [os.path.join(at, name) for at, _, names in os.walk(folder) for name in names if not at.startswith(TREE)]
            if files:
                self.problem(f"left behind: {files}")

    def said(self):
        lines = []
        for member in self.members:
            lines += [f"  rank {member.rank}, {member.language}:"] + [f"    {line}" for line in member.lines[-(400 if "--keep" in sys.argv else 12):]]
            if member.rank in self.log:
                node = self.log[member.rank]
                node.forget()
                lines += [f"    | {line}" for line in node.lines[-12:]]
        if self.launcher is not None:
            with open(PLACE + "/log", encoding="utf-8", errors="replace") as log:
                lines += ["  the launcher:"] + [f"    | {line.rstrip()}" for line in log.readlines()[-25:]]
        return "\n".join(lines)


def pairs(text):
    """[(least, greatest)] of each worker."""
    numbers = [float(word) for word in text.split()]
    return list(zip(numbers[::2], numbers[1::2]))


def processes():
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()]


def is_running(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def command_of(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return "?"


def reap(keep):
    """Reaps orphans: this process is the init of its namespace."""
    for pid in processes():
        if pid not in keep and not is_running(pid):
            try:
                os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                pass


def send_signal(pid, number):
    try:
        os.kill(pid, number)
    except OSError as error:
        if error.errno != errno.ESRCH:
            raise


def main():
    plan = Plan(int(sys.argv[1]))
    print(f"{plan.seed}: {plan}", flush=True)
    begun = time.monotonic()
    mount()
    run = Run(plan)
    vandal = Vandal(plan.seed) if plan.vandal else None
    try:
        run.begin()
        run.go()
        run.judge()
    finally:
        if vandal is not None:
            vandal.end()
    run.judge_rest()
    if run.problems or "--keep" in sys.argv:
        print(run.said())
    for text in run.problems:
        print("  PROBLEM:", text)
    print(f"  {plan.seed}: {'FAILED' if run.problems else 'ok'}, {run.begun} calls, {time.monotonic() - begun:.1f} s")
    sys.stdout.flush()
    os._exit(1 if run.problems else 0)


main()
