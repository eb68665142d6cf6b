"""Runs scenarios.txt and the other scenario files in one language, after checking that they use every public function.

    run.py HEADER COMMAND...     e.g.  run.py polyverso.h lua5.1 driver.lua lua5.1

POLYVERSO_DEVICE_PLUGIN names the emulation of devices, for devices.txt, and for tensors.txt, which also runs on a device.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
FILES = ("scenarios.txt", "tensors.txt", "devices.txt", "kvstore.txt", "gossip.txt", "group.txt", "distlearn.txt")
# Functions that only C has: callbacks, see docs/groups.md, and figures in structs, which the other languages get as
# maps from the text form of the same figures. swig/ must ignore these functions and no others.
ONLY_IN_C = {"mv_allreduce_custom", "mv_gossip_state", "mv_gossip_peers"}


def functions_of(header):
    return re.findall(r"^MV_API\s[^;]*?\b([mk]v_\w+)\(", header, re.MULTILINE)


def constants_of(header):
    """Every constant that a language must have: enumerators, statuses, and macros that are plain numbers."""
    code = re.sub(r"/\*.*?\*/", "", header, flags=re.DOTALL)
    constants = dict(re.findall(r"^#define ([MK]V_\w+) \(?(-?\d+)\)?$", code, re.MULTILINE))
    constants.pop("MV_STRUCT_VERSION")
    constants.update(("MV_" + name, value) for value, name in re.findall(r"XX\((-\d+), (\w+),", code))
    for body in re.findall(r"^enum \w+ \{(.*?)\}", code, re.MULTILINE | re.DOTALL):
        constants.update(re.findall(r"\b([MK]V_\w+) = (-?\d+)", body))
    return constants


def ignored_functions(swig, functions):
    """The functions that are hidden from the languages."""
    names = {name for file in swig.glob("*.i") for name in re.findall(r"^%ignore (\w+);", file.read_text(encoding="utf-8"), re.MULTILINE)}
    return names.intersection(functions)


def unused(functions, scenarios):
    used = {line.split()[0] for line in scenarios.splitlines() if line.strip()}
    return [function for function in functions if function not in used]


def on_device(scenarios):
    """Scenarios of tensors with all tensors on device 0: the same results, but no memory that the host reaches. The lines keep their numbers
    but for those that make a tensor of values, and have a second one that copies it."""
    lines = []
    for line in scenarios.splitlines():
        line = line.replace("mv_tensor_create ", "mv_tensor_create_on 0 ").replace("is_shared=1", "is_shared=0")
        if line.startswith("mv_tensor_data ") and "!" not in line:
            line += " ! MV_EINVAL"
        if line.startswith("mv_tensor_from ") and "=>" in line:
            call, name = line.split("=>")
            lines += [f"{call}=> $here", f"mv_tensor_to $here 0 =>{name}"]
        else:
            lines.append(line)
    return "\n".join(lines) + "\n"


def main():
    headers = sorted(pathlib.Path(sys.argv[1]).parent.glob("*.h"))
    header = "\n".join(file.read_text(encoding="utf-8") for file in headers)
    files = [file.read_text(encoding="utf-8") for file in map(HERE.joinpath, FILES)]
    functions = [name for name in functions_of(header) if name not in ONLY_IN_C]
    constants = constants_of(header)
    if len(functions) < 10 or len(constants) < 10:
        sys.exit(f"only {len(functions)} functions and {len(constants)} constants found in {sys.argv[1]}")
    ignored = ignored_functions(pathlib.Path(sys.argv[1]).parents[3] / "swig", functions_of(header))
    if ignored != ONLY_IN_C:
        sys.exit("ignored in swig/ or here only: " + ", ".join(sorted(ignored ^ ONLY_IN_C)))
    missing = unused(functions, "\n".join(files))
    if missing:
        sys.exit("no scenario uses " + ", ".join(missing))
    major, minor, patch = (int(constants[f"MV_VERSION_{part}"]) for part in ("MAJOR", "MINOR", "PATCH"))
    lines = ["", "scenario everything of the header is there"]
    lines += [f"mv_version -> {major * 10000 + minor * 100 + patch}", f'mv_version_text -> "{major}.{minor}.{patch}"']
    lines += [f"function {name}" for name in functions]
    lines += [f"constant {name} {value}" for name, value in sorted(constants.items())]
    files[0] += "\n".join(lines) + "\n"  # after the file's text, so line numbers are those of the file
    files.append(on_device(files[FILES.index("tensors.txt")]))
    alone = {key: value for key, value in os.environ.items() if not key.startswith("POLYVERSO_") or key == "POLYVERSO_DEVICE_PLUGIN"}
    with tempfile.TemporaryDirectory() as folder:
        script = pathlib.Path(folder) / "scenarios.txt"
        empty = pathlib.Path(folder) / "empty"
        empty.mkdir()
        for text in files:
            script.write_text(text.replace("@FOLDER@", str(empty)), encoding="utf-8")
            code = subprocess.run([*sys.argv[2:], str(script)], env=alone, timeout=120, check=False).returncode
            if code != 0:
                sys.exit(code)


main()
