#!/usr/bin/env python3
"""Runs one language's worker alone and as two, async and sync; or one of each language in one cluster.

    run.py python|luajit|mono|mixed

Ends with 77, and the package to install, where a language is missing.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
SKIPPED = 77
LIMIT = 60
PACKAGES = {"luajit": "luajit", "mono": "mono-mcs mono-runtime"}


def command_of(language, folder):
    """How a worker in this language is started; compiles it first where that is needed."""
    if language == "python":
        return [sys.executable, "-B", HERE / "worker.py"]
    if language == "luajit":
        return ["luajit", HERE / "worker.lua"]
    program = Path(folder, "worker.exe")
    subprocess.run(["mcs", f"-out:{program}", HERE / "worker.cs"], check=True)
    return ["mono", program]


def complaint(mode, commands):
    """Runs one worker by itself, or several under the launcher; tells what went wrong."""
    words = [*commands[0], mode]
    if len(commands) > 1:
        words = ["polyverso", "run", "--", *words]
        for command in commands[1:]:
            words += ["---", *command, mode]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("POLYVERSO_")}
    how = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, "timeout": LIMIT}
    done = subprocess.run(words, env=environment, **how)
    if done.returncode == 0 and done.stdout.count("as it should be") == len(commands):
        return ""
    return f"{' '.join(map(str, words))} ended with {done.returncode}:\n{done.stdout}{done.stderr}\n"


def main():
    languages = ["python", "luajit", "mono"] if sys.argv[1] == "mixed" else [sys.argv[1]]
    missing = [language for language in languages if language in PACKAGES and shutil.which(language) is None]
    if missing:
        packages = " ".join(PACKAGES[language] for language in missing)
        print(f"skipped: {' and '.join(missing)} not installed; Debian's packages: {packages}")
        return SKIPPED
    with tempfile.TemporaryDirectory() as folder:
        commands = [command_of(language, folder) for language in languages]
        clusters = [commands] if len(commands) > 1 else [commands, 2 * commands]
        complaints = "".join(complaint(mode, cluster) for cluster in clusters for mode in ("async", "sync"))
    print(complaints, end="")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
