#!/usr/bin/env python3
"""Makes every N-th allocation of one process of a small cluster fail, once, and checks the outcome.

For each scenario, each process and each N until the work completes without a failure: the call succeeds, or fails with
MV_ENOMEM without an effect, or the others report the process as lost. Never a crash, a hang, a wrong value or a lost
acknowledged add.

    allocations.py                       every N of every scenario
    allocations.py --sample 20 --seed 7  20 values of N for each, drawn by the seed
    allocations.py merge --victim 0 --n 17   this one, with its output and the place of the allocation
"""

import argparse
import os
import random
import sys
import tempfile
import time

from clusters import ALONE, SCENARIOS, judge, run

WORKER = os.environ.get("ALLOCATION_WORKER", "allocation_worker")


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
                whole = run(scenario, victim, 0, folder, WORKER) if options.n is None else None
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
                    outcome = run(scenario, victim, n, folder, WORKER, trace=options.n is not None)
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
    """The number of allocations that the work makes if none fails."""
    return run(scenario, victim, 1 << 60, folder, WORKER).ranks[victim]["count"]


if __name__ == "__main__":
    sys.exit(main())
