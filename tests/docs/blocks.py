#!/usr/bin/env python3
"""Runs the programs that a document shows, in the activated environment.

    blocks.py DOCUMENT BUILD SOURCE

A fenced block marked c, cpp, perl, python or lua is a complete program, which must exit with 0; Lua programs run on every
installed Lua. A comment `-> text` promises a line of output: these lines, in order, must be the program's whole output.
A block that is not a complete program is marked ```c fragment.
A block after the line <!-- file: PATH --> must equal that file of the repository.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

FENCE = re.compile(r"^```(\w+)[ \t]*(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SHOWN = re.compile(r"^<!-- file: (\S+) -->\n```[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PROMISE = re.compile(r"(?:#|--|//|/\*) -> (.*?)(?: *\*/)?$", re.MULTILINE)
SUFFIX = {"c": ".c", "cpp": ".cpp", "perl": ".pl", "python": ".py", "lua": ".lua"}
RUNNERS = {"perl": [["perl", "-w"]], "python": [["python3"]], "lua": [["lua5.1"], ["luajit"], ["lua5.4"]]}
LIMIT = 120  # seconds; examples must be fast


def compiled(file, build, source):
    """Compiles a C or C++ program. Returns its path, or raises with the compiler's output."""
    program, library = file.with_suffix(""), build / "lib"
    compiler = ["c++", "-std=c++20"] if file.suffix == ".cpp" else ["cc", "-std=c99"]
    command = [*compiler, "-Wall", "-Wextra", "-Werror", "-o", program, file, f"-I{source}/capi/include"]
    names = [name for name in ("multiverso", "polyverso") if (library / f"lib{name}.so").exists()]
    command += [f"-L{library}", f"-Wl,-rpath,{library}", "-Wl,--as-needed", *(f"-l{name}" for name in names), "-lm"]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return program


def run(language, text, folder, build, source):
    """Runs one block. Returns the problems found."""
    file = folder / f"example{SUFFIX[language]}"
    file.write_text(text)
    promised = PROMISE.findall(text)
    try:
        commands = [[compiled(file, build, source)]] if language in ("c", "cpp") else [[*runner, file] for runner in RUNNERS[language]]
    except subprocess.CalledProcessError as error:
        yield f"does not compile:\n{error.stderr}"
        return
    for command in commands:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT)
        if done.returncode != 0:
            yield f"{command[0]} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
        elif promised and done.stdout.splitlines() != promised:
            yield f"{command[0]} printed\n{done.stdout}where the text promises\n" + "\n".join(promised)


def outdated(text, source):
    """Yields a problem for each block that differs from the file it shows."""
    for match in SHOWN.finditer(text):
        if match[2] != (source / match[1]).read_text(encoding="utf-8"):
            yield text.count("\n", 0, match.start()) + 1, f"differs from {match[1]}"


def main():
    document, build, source = (Path(argument).resolve() for argument in sys.argv[1:4])
    text = document.read_text(encoding="utf-8")
    bad = ran = 0
    for line, complaint in outdated(text, source):
        print(f"{document.name}:{line}: {complaint}")
        bad += 1
    for match in FENCE.finditer(text):
        language, mark, program = match.groups()
        if language not in SUFFIX or mark == "fragment":
            continue
        ran += 1
        line = text.count("\n", 0, match.start()) + 1
        with tempfile.TemporaryDirectory() as folder:
            for complaint in run(language, program, Path(folder), build, source):
                print(f"{document.name}:{line}: {complaint}")
                bad += 1
    print(f"{document.name}: {ran} programs, {bad} complaints")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
