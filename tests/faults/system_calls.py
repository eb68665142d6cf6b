#!/usr/bin/env python3
"""Makes system calls of one process of a small cluster fail, by seeds, and checks the outcome: see system_calls.c.

Interrupted, blocked and partial calls have no visible effect. If the system refuses a call, the operation succeeds or
returns a clear error, or the others report the process as lost. Never a crash, a hang, a wrong value or a lost
acknowledged add.

    system_calls.py --seeds 1..100           these seeds; each chooses its scenario
    system_calls.py checkpoint --seeds 17    this seed in this scenario, with its output and the places of the calls
"""

import argparse
import concurrent.futures
import os
import random
import sys
import tempfile

from clusters import ALLOWED, ALONE, SCENARIOS, judge, processes_of, run

WORKER = os.environ.get("SYSTEM_CALL_WORKER", "system_call_worker")
REFUSED = ALLOWED | {"MV_EIO", "MV_EINTR", "MV_ECANCELED", "MV_EUNREACHABLE", "MV_ETIMEOUT"}


def try_seed(seed, scenario, trace):
    """Runs one cluster. Returns how it ended, the problem or None, and a report."""
    dice = random.Random(seed)
    scenario = scenario or dice.choice([*ALONE, *SCENARIOS, "checkpoint", "checkpoint", "checkpoint"])  # checkpoint uses files
    victim, early = dice.randrange(processes_of(scenario)), dice.random() < 0.6
    with tempfile.TemporaryDirectory(prefix="polyverso-faults-") as folder:
        outcome = run(scenario, victim, seed, folder, WORKER, trace=trace, early=early)
    told = outcome.ranks.get(victim, {"fault": "?", "failed": 1, "worst": "?", "absorbed": 1})
    # A process that repeats a call after a signal may be alone in it: the others are already in the next call.
    wrong, hit = judge(scenario, victim, outcome, REFUSED | {"MV_EDISAGREE"} if told["fault"] == "a signal" else REFUSED)
    ending = f"{told['fault']}: " + (wrong.split(":")[0] if wrong else told["worst"] if hit else "not reached")
    text = f"{'FAILED' if wrong else 'passed'}: {told['fault']}{', early' * early}, rank {victim}: {wrong}\n  {sys.argv[0]} {scenario} --seeds {seed}"
    return ending, wrong, text + ("\n" + outcome.output) * (trace or "FAULT_VERBOSE" in os.environ)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenario", nargs="?", choices=[*ALONE, *SCENARIOS])
    parser.add_argument("--seeds", default="1..100", help="FIRST..LAST, or one")
    parser.add_argument("--jobs", type=int, default=4, help="clusters at a time; most of them wait most of the time")
    options = parser.parse_args()
    first, _, last = options.seeds.partition("..")
    seeds = range(int(first), int(last or first) + 1)
    endings, failed = {}, 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for ending, wrong, text in pool.map(lambda seed: try_seed(seed, options.scenario, not last), seeds):
            endings[ending] = endings.get(ending, 0) + 1
            failed += wrong is not None
            if wrong or not last:
                print(text, flush=True)
    print("\n".join(f"{count:6} {ending}" for ending, count in sorted(endings.items())))
    print(f"{len(seeds) - failed} passed, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
