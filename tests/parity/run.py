"""Puts scenarios.txt through every language, after checking that it uses every public function.

    run.py HEADER COMMAND...     e.g.  run.py polyverso.h lua5.1 driver.lua lua5.1
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent


def functions_of(header):
    return re.findall(r"^MV_API\s[^;]*?\b(mv_\w+)\(", header, re.MULTILINE)


def constants_of(header):
    """Every constant a language must have: enumerators, statuses, and macros that are plain numbers."""
    code = re.sub(r"/\*.*?\*/", "", header, flags=re.DOTALL)
    constants = dict(re.findall(r"^#define (MV_\w+) \(?(-?\d+)\)?$", code, re.MULTILINE))
    constants.pop("MV_STRUCT_VERSION")
    constants.update(("MV_" + name, value) for value, name in re.findall(r"XX\((-\d+), (\w+),", code))
    for body in re.findall(r"^enum \w+ \{(.*?)\}", code, re.MULTILINE | re.DOTALL):
        constants.update(re.findall(r"\b(MV_\w+) = (-?\d+)", body))
    return constants


def unused(functions, scenarios):
    used = {line.split()[0] for line in scenarios.splitlines() if line.strip()}
    return [function for function in functions if function not in used]


def main():
    header = pathlib.Path(sys.argv[1]).read_text(encoding="utf-8")
    scenarios = (HERE / "scenarios.txt").read_text(encoding="utf-8")
    functions = functions_of(header)
    constants = constants_of(header)
    if len(functions) < 10 or len(constants) < 10:
        sys.exit(f"only {len(functions)} functions and {len(constants)} constants found in {sys.argv[1]}")
    missing = unused(functions, scenarios)
    if missing:
        sys.exit("no scenario uses " + ", ".join(missing))
    major, minor, patch = (int(constants[f"MV_VERSION_{part}"]) for part in ("MAJOR", "MINOR", "PATCH"))
    lines = ["", "scenario everything of the header is there"]
    lines += [f"mv_version -> {major * 10000 + minor * 100 + patch}", f'mv_version_text -> "{major}.{minor}.{patch}"']
    lines += [f"function {name}" for name in functions]
    lines += [f"constant {name} {value}" for name, value in sorted(constants.items())]
    with tempfile.TemporaryDirectory() as folder:
        script = pathlib.Path(folder) / "scenarios.txt"
        # After the rest, so that line numbers are those of scenarios.txt.
        script.write_text(scenarios + "\n".join(lines) + "\n", encoding="utf-8")
        alone = {key: value for key, value in os.environ.items() if not key.startswith("POLYVERSO_")}
        sys.exit(subprocess.run([*sys.argv[2:], str(script)], env=alone, timeout=120, check=False).returncode)


main()
