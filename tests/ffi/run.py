#!/usr/bin/env python3
"""Runs one runtime's program, which opens libpolyverso.so.0 directly: alone, and as two workers.

    run.py RUNTIME CACHE      CACHE: a folder for files that runtimes compile once

All programs do the same: they make a table, add and get, complete an asynchronous add through mv_event_fd() and
mv_poll(), run an updater callback in mv_poll(), and make an invalid call. Exits with 77, and names the package to
install, if the runtime is missing.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
SKIPPED = 77
LIMIT = 120  # seconds, for the slowest case: Common Lisp compiles its libraries once


@dataclass
class Runtime:
    file: str
    packages: str  # Debian's
    run: str
    probe: str = ""  # succeeds if the other requirements of `run` are installed
    build: list[str] = field(default_factory=list)


RUNTIMES = {
    "luajit": Runtime("luajit.lua", "luajit", "luajit {file}"),
    "ctypes": Runtime("python_ctypes.py", "python3", "python3 {file}"),
    "cffi": Runtime(
        "python_cffi.py", "python3-cffi", "/usr/bin/python3 {file}", probe="/usr/bin/python3 -c 'import cffi'"
    ),
    "platypus": Runtime("perl_platypus.pl", "libffi-platypus-perl", "perl {file}", probe="perl -MFFI::Platypus -e 1"),
    "php": Runtime("php.php", "php8.2-cli", "php {file}", probe="php -r 'exit(extension_loaded(\"ffi\") ? 0 : 1);'"),
    "fiddle": Runtime("ruby_fiddle.rb", "ruby", "ruby {file}", probe="ruby -r fiddle -e 1"),
    "guile": Runtime("guile.scm", "guile-3.0", "guile --no-auto-compile {file}"),
    "sbcl": Runtime(
        "sbcl_cffi.lisp", "sbcl cl-cffi", "sbcl --script {file}", probe="test -d /usr/share/common-lisp/source/cl-cffi",
        build=["sbcl --noinform --non-interactive --eval '(require :asdf)' --eval '(asdf:load-system :cffi)'"],
    ),
    "nim": Runtime(
        "nim_dynlib.nim", "nim", "{folder}/program",
        build=["nim compile --hints:off --nimcache:{folder}/nim --out:{folder}/program {file}"],
    ),
    "mono": Runtime(
        "mono_pinvoke.cs", "mono-mcs mono-runtime", "mono {folder}/program.exe", probe="command -v mono",
        build=["mcs -out:{folder}/program.exe {file}"],
    ),
}


def words(command, **places):
    return [word.format(**places) if "{" in word else word for word in shlex.split(command)]


def is_there(runtime):
    program = words(runtime.build[0] if runtime.build else runtime.run, file="", folder="")[0]
    if shutil.which(program) is None:
        return False
    return not runtime.probe or subprocess.run(runtime.probe, shell=True, capture_output=True).returncode == 0


def output_of(command, environment):
    """Runs a command. Returns its standard output; if it fails, prints all output and ends the test."""
    how = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, "timeout": LIMIT}
    done = subprocess.run(command, env=environment, **how)
    if done.returncode != 0:
        print(" ".join(map(str, command)), f"ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        sys.exit(1)
    return done.stdout


def complaints(lines, workers):
    """Yields the problems in one worker's lines."""
    if len(lines) != 5:
        yield f"5 lines are expected, there are {len(lines)}"
        return
    sums = ((lines[0], "after one add", workers), (lines[2], "after two adds", 2 * workers), (lines[3], "update on key 3", 3))
    for line, label, adds in sums:
        name, _, numbers = line.partition(": ")
        if name != label or [float(number) for number in numbers.split()] != [adds, 2.0 * adds, 3.0 * adds]:
            yield f'"{line}" is not "{label}" of {adds} times 1, 2, 3'
    if lines[1] != "event fd: readable, 1 finished":
        yield f'"{lines[1]}": the asynchronous add should make the descriptor readable and be handed out by mv_poll()'
    if not re.fullmatch(r'MV_ESHAPE: .*"w".*2 values given.*', lines[4]):
        yield f'"{lines[4]}" is not the error of a get of two values'


def main():
    name, cache = sys.argv[1], Path(sys.argv[2])
    runtime = RUNTIMES[name]
    if not is_there(runtime):
        print(f"skipped: {name} is not installed; Debian's package: {runtime.packages}")
        return SKIPPED
    cache.mkdir(parents=True, exist_ok=True)
    environment = {key: value for key, value in os.environ.items() if not key.startswith("POLYVERSO_")}
    environment["XDG_CACHE_HOME"] = str(cache)
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        for command in runtime.build:
            output_of(words(command, file=HERE / runtime.file, folder=folder), environment)
        command = words(runtime.run, file=HERE / runtime.file, folder=folder)
        alone = output_of(command, environment).splitlines()
        pair = output_of(["polyverso", "run", "-n", "2", "--", *command], environment).splitlines()
    heard = {"alone": (alone, 1)}
    for label in ("[w0] ", "[w1] "):
        heard[label.strip()] = ([line[len(label):] for line in pair if line.startswith(label)], 2)
    for who, (lines, workers) in heard.items():
        for complaint in complaints(lines, workers):
            print(f"{name}, {who}: {complaint}")
            bad += 1
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
