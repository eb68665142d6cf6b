"""Small clusters with failures in one process (worker.c), and the outcomes that are allowed."""

import json
import os
import shutil
import subprocess

# The launcher settings of each scenario. The worker implements the scenario.
SCENARIOS = {
    "async": [], "async/tcp": ["transport=tcp"], "sync": ["sync=true"], "merge": [], "dcasgd": [], "one_way": [], "one_way/tcp": ["transport=tcp"], "keyed": [],
    "async/replicas": ["replicas=1"], "merge/replicas": ["replicas=1"], "dcasgd/replicas": ["replicas=1"], "keyed/replicas": ["replicas=1"],
    "merge_keyed": [], "group": [], "group/tcp": ["transport=tcp"], "regroup": [], "regroup/tcp": ["transport=tcp"], "dist_async": [], "dist_sync": [], "dist_states": [], "checkpoint": [], "status": [], "gossip": [], "abort": [], "abort/tcp": ["transport=tcp"],
    "elastic": [], "elastic/tcp": ["transport=tcp"],
}
OPTIONS = {"elastic": ["--max-workers", "3"]}  # further ones of the launcher
ALONE = {"local": "async", "local_keyed": "keyed"}  # one process
ALLOWED = {"MV_OK", "MV_ENOMEM", "MV_EPEERLOST", "MV_ESYSTEM"}  # MV_ESYSTEM: no thread could be started
TIMEOUT = 90


class Outcome:
    def __init__(self, status, output, ranks):
        self.status, self.output, self.ranks = status, output, ranks


def processes_of(scenario):
    return 1 if scenario in ALONE else 2


def run(scenario, victim, n, folder, worker, trace=False, early=False):
    """Runs one cluster to its end. early: failures start before mv_init()."""
    name = ALONE.get(scenario, scenario.split("/")[0])
    command = ["polyverso", "run", "--no-color", "--keep-going", "-n", str(processes_of(scenario)), "--set", "heartbeat_timeout_ms=3000", "--set", "gate_timeout_ms=20000"]
    for setting in SCENARIOS.get(scenario, []) + ["init_timeout_ms=15000"] * early:
        command += ["--set", setting]
    command += OPTIONS.get(name, [])
    place = os.path.join(folder, "checkpoint")
    shutil.rmtree(place, ignore_errors=True)
    command += ["--", worker, name, str(victim), str(n), place] + ["early"] * early
    environment = {**os.environ, **({"FAULT_TRACE": "1"} if trace else {})}
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=TIMEOUT, env=environment)
        status, output = done.returncode, done.stdout
    except subprocess.TimeoutExpired as late:
        status, output = None, (late.stdout or b"").decode(errors="replace")
    ranks = {}
    for line in output.splitlines():
        if "{" in line and line.rstrip().endswith("}"):
            try:
                told = json.loads(line[line.index("{"):])
                ranks[told["rank"]] = told
            except ValueError:
                pass
    return Outcome(status, output, ranks)


def judge(scenario, victim, outcome, allowed=ALLOWED):
    """Returns the problem, or None; and whether anything failed at all."""
    if outcome.status is None:
        return "hung", True
    if len(outcome.ranks) < processes_of(scenario):
        return f"a process ended without a word (status {outcome.status})", True
    hit = outcome.ranks[victim]
    for told in outcome.ranks.values():
        unsure = sum(each["unknown"] for each in outcome.ranks.values()) > 0  # one server may have applied its part of such an add
        if told["trouble"] and not (unsure and "differ" in told["trouble"]):
            return f"rank {told['rank']}: {told['trouble']}", True
        for what in ("worst", "ended"):
            if told[what] not in allowed and hit["failed"]:
                return f"rank {told['rank']}: {what} {told[what]}", True
            if told[what] != "MV_OK" and not hit["failed"]:
                return f"rank {told['rank']}: {what} {told[what]} without a failure", True
            if told[what] != "MV_OK" and hit["absorbed"]:
                return f"rank {told['rank']}: {what} {told[what]} because of {hit['fault']}", True
        if told["sums"] and told["value"] >= 0:
            least = sum(each["acked"] for each in outcome.ranks.values())
            most = least + sum(each["unknown"] for each in outcome.ranks.values())
            if not least <= told["value"] <= most:
                return f"rank {told['rank']} sees {told['value']}, not {least} .. {most}", True
    return None, bool(hit["failed"])
