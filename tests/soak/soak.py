#!/usr/bin/env python3
"""Runs small clusters of random members with random work, and injects random faults.

A seed determines the cluster (languages, roles, start, transports), the work of its members (tables, stores, groups,
gossip) and the faults: a process is killed or stopped, strangers disturb its ports, a member's shared memory is
overwritten. Each run has its own namespaces, so it has no effect outside, and leftovers are found. The invariants:

 - survivors end soon, with success or with errors that name a lost process;
 - an acknowledged add is counted exactly once, an unanswered one at most once;
 - no process and no file is left behind.

    soak.py --seeds 1-1000 --jobs 4
    soak.py --seeds 17 --keep          one run, with all output of its members
"""

import argparse
import concurrent.futures
import os
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
LONGEST = 150  # seconds; a longer run counts as hung
SLOW = 30  # seconds; a longer run is listed
SKIPPED = 77


def namespaces():
    """The command that starts a run's namespaces, or None if they are not available."""
    for user in ([], ["--user", "--map-root-user"]):
        command = ["unshare", *user, "--mount", "--pid", "--net", "--ipc", "--fork", "--kill-child", "--mount-proc"]
        if subprocess.run([*command, "true"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode == 0:
            return command
    return None


def run(prefix, seed, keep):
    command = [*prefix, sys.executable, "-B", os.path.join(HERE, "inside.py"), str(seed), *(["--keep"] if keep else [])]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("POLYVERSO_")}
    begun = time.monotonic()
    try:
        done = subprocess.run(command, cwd=HERE, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=LONGEST, check=False)
        status, output = done.returncode, done.stdout
    except subprocess.TimeoutExpired as late:
        status, output = None, (late.stdout or b"").decode(errors="replace") + f"\nthe run has not ended within {LONGEST} s"
    return seed, status, output, time.monotonic() - begun


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="1-100", help="A-B, or one")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="runs at a time")
    parser.add_argument("--keep", action="store_true", help="show what the members of every run said")
    options = parser.parse_args()
    first, _, last = options.seeds.partition("-")
    seeds = range(int(first), int(last or first) + 1)
    prefix = namespaces()
    if prefix is None:
        print("soak: namespaces are not to be had here: this wants root, or a kernel that lets users make them")
        return SKIPPED
    begun, failed, lock = time.monotonic(), [], threading.Lock()

    def one(seed):
        result = run(prefix, seed, options.keep)
        with lock:
            seed, status, output, seconds = result
            if status != 0:
                failed.append(seed)
                print(f"FAILED: {sys.executable} {os.path.relpath(os.path.join(HERE, 'soak.py'))} --seeds {seed} --keep\n{output}", flush=True)
            elif options.keep or len(seeds) <= 20 or seconds > SLOW:
                print(output, end="", flush=True)
            done = one.done = one.done + 1
            if done % 20 == 0 or done == len(seeds):
                rate = done / (time.monotonic() - begun) * 60
                print(f"soak: {done} of {len(seeds)} runs, {len(failed)} failed, {rate:.0f} a minute; the last took {seconds:.1f} s", flush=True)

    one.done = 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for future in [pool.submit(one, seed) for seed in seeds]:
            future.result()
    if failed:
        print("soak: FAILED seeds:", *sorted(failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
