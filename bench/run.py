#!/usr/bin/env python3
"""Compares Polyverso with its peers, and writes a table, plots and results.json. `make bench` builds and runs this;
docs/benchmarks.md says how to read its output."""

import argparse
import datetime
import fnmatch
import pathlib
import shutil
import signal
import subprocess
import sys
import time
import traceback

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.dont_write_bytecode = True

import publish  # noqa: E402
import rows  # noqa: E402
from harness import machine, result  # noqa: E402
from harness.bench import Bench, find_measurements  # noqa: E402
from harness.process import Broken  # noqa: E402


class Progress:
    """A progress line that overwrites itself on a terminal; elsewhere, one line for each measurement and its time."""

    def __init__(self, total):
        self._total = total
        self._at = 0
        self._name = ""
        self._live = sys.stderr.isatty()

    def begin(self, name):
        self._at += 1
        self._name = name
        self._begun = time.monotonic()
        if not self._live:
            print(f"[{self._at}/{self._total}] {name}", end="", file=sys.stderr, flush=True)

    def __call__(self, text):
        if self._live:
            width = shutil.get_terminal_size().columns - 1
            line = f"[{self._at}/{self._total}] {self._name}: {text}"
            print("\r\033[K" + line[:width], end="", file=sys.stderr, flush=True)

    def end(self):
        if self._live:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
        else:
            print(f": {time.monotonic() - self._begun:.0f} s", file=sys.stderr, flush=True)


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--only", metavar="PATTERN", action="append", help="what matches (shell wildcards); may be given several times")
    add("--quick", action="store_true", help="few and short runs: does everything work? The figures mean little")
    add("--list", action="store_true", help="say what there is to measure")
    add("--publish", action="store_true", help="also write the results into docs/benchmarks/, in a file for this kind of processor")
    add("--build", metavar="DIR", type=pathlib.Path, default=HERE.parent / "build", help="build tree (default: build)")
    return parser.parse_args()


def chosen(measurements, patterns):
    if not patterns:
        return measurements
    names = [name for name in measurements if any(fnmatch.fnmatch(name, pattern) for pattern in patterns)]
    if not names:
        sys.exit(f"bench: nothing matches {' '.join(patterns)}; --list says what there is")
    return {name: measurements[name] for name in names}


def activated(build):
    """The environment variables of `source build/activate`."""
    script = '. "$0/activate" && env -0'
    done = subprocess.run(["sh", "-c", script, str(build)], check=True, capture_output=True, text=True)
    variables = (line.split("=", 1) for line in done.stdout.split("\0") if "=" in line)
    # Neither an enclosing cluster nor the user's settings must affect the measurements.
    return {name: value for name, value in variables if not name.startswith("POLYVERSO_")}


def measure(bench, measurements, progress, keep):
    """Runs the measurements. Returns the rows, the names of the measurements that failed, and whether all were made: an
    interruption ends the run, and what was measured before it counts. Calls keep(rows) after each measurement."""
    found, broken = [], []
    for name, function in measurements.items():
        progress.begin(name)
        try:
            found.extend(row.as_json() for row in function(bench))
        except KeyboardInterrupt:
            progress.end()
            return found, broken, False
        except Exception as error:  # continue with the other measurements
            broken.append(name)
            progress.end()
            story = error if isinstance(error, Broken) else traceback.format_exc()
            print(f"bench: {name} is broken: {story}", file=sys.stderr, flush=True)
        else:
            progress.end()
        keep(found)
    return found, broken, True


def commit():
    """The commit that is measured; "" outside of a git checkout."""
    git = ["git", "-C", HERE, "describe", "--always", "--abbrev=12", "--dirty=+"]
    try:
        return subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def about_run(quick):
    return {
        "kind": machine.kind(),
        "processor": machine.describe_processor(),
        "system": machine.system(),
        "date": datetime.date.today().isoformat(),
        "commit": commit(),
        "effort": "quick" if quick else "full",
    }


def draw(bench, measured, caption):
    """Draws the plots of this run's measurements; returns their paths."""
    try:
        from plots import bars, curves  # imported here, because matplotlib takes a second
    except ImportError as missing:
        print(f"bench: no plots: {missing}", file=sys.stderr)
        return []

    paths = []
    for name, (title, series) in bench.curves.items():
        paths.append(bench.output / f"{name}.png")
        curves.draw(paths[-1], series, title, caption)
    for name, picture in bench.pictures.items():
        paths.append(bench.output / f"{name}.png")
        picture(paths[-1], caption)
    round_trips = [row for row in measured if row["unit"] == "µs" and row["peer_value"] is not None]
    if round_trips:
        paths.append(bench.output / "latency.png")
        bars.draw(paths[-1], round_trips, "round trips", caption)
    return paths


def main():
    asked = options()
    measurements = chosen(find_measurements(rows), asked.only)
    if asked.list:
        for name, function in measurements.items():
            print(f"{name:20} {function.__doc__}")
        return 0
    build = asked.build.resolve()
    if not (build / "bench" / "bin").exists():
        sys.exit(f"bench: {build} has no benchmarks: type `make bench`, or configure it with -DPOLYVERSO_BENCH=ON")

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what was measured so far is printed and kept
    begun = time.monotonic()
    print(machine.describe(), flush=True)
    if machine.load() > 0.5 and not asked.quick:
        print("bench: this machine is busy; look at the ranges before you believe a figure", file=sys.stderr)
    about = about_run(asked.quick)
    progress = Progress(len(measurements))
    bench = Bench(build, HERE, activated(build), asked.quick, progress)
    file = bench.output / "results.json"
    others = result.load(file) if asked.only else None
    if others is None or others["kind"] != about["kind"]:
        others = {"rows": []}
    measured, broken, is_whole = measure(bench, measurements, progress, lambda rows: result.save(file, about, others["rows"], rows))
    if measured:
        print(result.table(measured))
    for path in [file, *draw(bench, measured, f"{about['processor']}; {about['effort']} run")]:
        print(path)
    if asked.publish:
        print(publish.take(file, HERE.parent / "docs"))
    targets = [row["met"] for row in measured if row["met"] is not None]
    print(f"bench: {sum(targets)} of {len(targets)} targets met, {time.monotonic() - begun:.0f} s")
    if broken:
        print(f"bench: broken: {', '.join(broken)}", file=sys.stderr)
    if not is_whole:
        print(f"bench: interrupted; {file} has what was measured before", file=sys.stderr)
        return 130
    return 1 if broken else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:  # before the first measurement, or twice
        sys.exit(130)
