#!/usr/bin/env python3
"""Makes every N-th allocation of one process of a small cluster fail, once, and judges what becomes of it.

For each scenario, for each process and each N until the work runs through without a failure: the call succeeds, or fails with MV_ENOMEM and has
changed nothing, or the process is named as lost by the others; never a crash, a hang, a wrong value or a lost acknowledged add.

    allocations.py                       every N of every scenario
    allocations.py --sample 20 --seed 7  20 of the Ns of each, drawn by the seed
    allocations.py merge --victim 0 --n 17   this one, with its output and where the allocation was
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time

# Each scenario's launcher settings. The worker knows what it does.
SCENARIOS = {
    "async": [], "async/tcp": ["io=tcp"], "sync": ["sync=true"], "merge": [], "dcasgd": [], "keyed": [], "merge_keyed": [],
    "group": [], "group/tcp": ["io=tcp"], "dist_async": [], "dist_sync": [], "checkpoint": [], "status": [], "gossip": [],
}
ALONE = {"local": "async", "local_keyed": "keyed"}  # one process
ALLOWED = {"MV_OK", "MV_ENOMEM", "MV_EPEERLOST", "MV_ESYSTEM"}  # the last: no thread could be started
TIMEOUT = 90


class Outcome:
    def __init__(self, status, output, ranks):
        self.status, self.output, self.ranks = status, output, ranks


def run(scenario, victim, n, folder, trace=False):
    """Runs one cluster to its end."""
    processes = 1 if scenario in ALONE else 2
    name = ALONE.get(scenario, scenario.split("/")[0])
    command = ["polyverso", "run", "--no-color", "--keep-going", "-n", str(processes), "--set", "heartbeat_timeout_ms=3000", "--set", "gate_timeout_ms=20000"]
    for setting in SCENARIOS.get(scenario, []):
        command += ["--set", setting]
    place = os.path.join(folder, "checkpoint")
    shutil.rmtree(place, ignore_errors=True)
    command += ["--", os.environ.get("ALLOCATION_WORKER", "allocation_worker"), name, str(victim), str(n), place]
    environment = {**os.environ, **({"ALLOCATION_TRACE": "1"} if trace else {})}
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


def judge(scenario, victim, outcome):
    """What is wrong, or None; and whether an allocation failed at all."""
    processes = 1 if scenario in ALONE else 2
    if outcome.status is None:
        return "hung", True
    if len(outcome.ranks) < processes:
        return f"a process ended without a word (status {outcome.status})", True
    hit = outcome.ranks[victim]
    for told in outcome.ranks.values():
        unsure = sum(each["unknown"] for each in outcome.ranks.values()) > 0  # one server may have applied its part of such an add
        if told["trouble"] and not (unsure and "differ" in told["trouble"]):
            return f"rank {told['rank']}: {told['trouble']}", True
        for what in ("worst", "ended"):
            if told[what] not in ALLOWED and hit["failed"]:
                return f"rank {told['rank']}: {what} {told[what]}", True
            if told[what] != "MV_OK" and not hit["failed"]:
                return f"rank {told['rank']}: {what} {told[what]} without a failure", True
        if told["sums"] and told["value"] >= 0:
            least = sum(each["acked"] for each in outcome.ranks.values())
            most = least + sum(each["unknown"] for each in outcome.ranks.values())
            if not least <= told["value"] <= most:
                return f"rank {told['rank']} sees {told['value']}, not {least} .. {most}", True
    return None, bool(hit["failed"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenarios", nargs="*", help="of: " + ", ".join([*ALONE, *SCENARIOS]))
    parser.add_argument("--sample", type=int, default=0, help="so many Ns of each scenario and process; 0: all")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="for --sample; printed")
    parser.add_argument("--victim", type=int, help="only this rank")
    parser.add_argument("--n", type=int, help="only this allocation, with all output")
    options = parser.parse_args()
    dice = random.Random(options.seed)
    print(f"allocations.py: seed {options.seed}", flush=True)
    passed = failed = 0
    endings = {}
    with tempfile.TemporaryDirectory(prefix="polyverso-faults-") as folder:
        for scenario in options.scenarios or [*ALONE, *SCENARIOS]:
            for victim in [0] if scenario in ALONE else [0, 1]:
                if options.victim is not None and victim != options.victim:
                    continue
                whole = run(scenario, victim, 0, folder) if options.n is None else None
                if whole is not None and (len(whole.ranks) == 0 or judge(scenario, victim, whole)[0]):
                    failed += 1
                    print(f"FAILED: {scenario}: without a failing allocation: {judge(scenario, victim, whole)[0]}\n{whole.output}", flush=True)
                    continue
                total = 0 if whole is None else count_of(scenario, victim, folder)
                numbers = [options.n] if options.n is not None else range(1, total + 1)
                if options.sample and options.n is None:
                    numbers = sorted(dice.sample(numbers, min(options.sample, total)))
                begun, bad = time.monotonic(), 0
                for n in numbers:
                    outcome = run(scenario, victim, n, folder, trace=options.n is not None)
                    wrong, hit = judge(scenario, victim, outcome)
                    ending = wrong.split(":")[0] if wrong else outcome.ranks[victim]["worst"] if hit else "not reached"
                    endings[ending] = endings.get(ending, 0) + 1
                    passed, failed, bad = passed + (wrong is None), failed + (wrong is not None), bad + (wrong is not None)
                    if wrong or options.n is not None:
                        print(f"{'FAILED' if wrong else 'passed'}: {scenario} --victim {victim} --n {n}: {wrong}", flush=True)
                        if options.n is not None or os.environ.get("ALLOCATION_VERBOSE"):
                            print(outcome.output, flush=True)
                print(f"{scenario}, rank {victim}: {len(numbers)} of {total} allocations failed, {bad} ended badly; {time.monotonic() - begun:.0f} s", flush=True)
    print("how the calls ended:", ", ".join(f"{count} {ending}" for ending, count in sorted(endings.items())))
    print(f"{passed} passed, {failed} failed")
    return failed > 0


def count_of(scenario, victim, folder):
    """How many allocations the work makes, where none fails."""
    return run(scenario, victim, 1 << 60, folder).ranks[victim]["count"]


if __name__ == "__main__":
    sys.exit(main())
