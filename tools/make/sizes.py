#!/usr/bin/env python3
"""Lists what is larger than a reader takes in at once: files of more than 600 lines, functions of more than 60, classes of more than 300
over all their files. Not an error: each of them should say why it is so large. Needs universal-ctags.

    sizes.py [FOLDER...]          default: core capi/src tools
"""

import collections
import json
import subprocess
import sys

MOST = {"file": 600, "function": 60, "class": 300}


def sources(folders):
    listed = subprocess.run(["git", "ls-files", "--", *folders], capture_output=True, text=True, check=True).stdout.split()
    return [path for path in listed if path.endswith((".cpp", ".hpp"))]


def tags(paths):
    """Every function, class and struct with its first and last line and its scope."""
    command = ["ctags", "--output-format=json", "--fields=+neKsS", "--kinds-C++=cfs", "--language-force=C++", "-f", "-", "-L", "-"]
    listed = subprocess.run(command, input="\n".join(paths), capture_output=True, text=True, check=True).stdout
    return [tag for tag in map(json.loads, listed.splitlines()) if tag.get("_type") == "tag" and "end" in tag]


def main():
    paths = sources(sys.argv[1:] or ["core", "capi/src", "tools"])
    found = []
    for path in paths:
        with open(path, encoding="utf-8") as file:
            found.append(("file", sum(1 for _ in file), path))
    classes = collections.Counter()
    places = {}
    listed = tags(paths)
    for tag in listed:
        if tag["kind"] in ("class", "struct"):
            name = "::".join(filter(None, [tag.get("scope"), tag["name"]]))
            if "__anon" not in name:
                classes[name] += tag["end"] - tag["line"] + 1
                places.setdefault(name, f"{tag['path']}:{tag['line']}")
    for tag in listed:
        if tag["kind"] != "function":
            continue
        lines = tag["end"] - tag["line"] + 1
        where = f"{tag['path']}:{tag['line']}"
        found.append(("function", lines, f"{tag.get('scope', '')}::{tag['name']}  {where}"))
        # What is defined outside of its class adds to it; its declaration's body is counted already.
        owner = tag.get("scope", "")
        if owner in places and not places[owner].startswith(tag["path"] + ":"):
            classes[owner] += lines
    found += [("class", lines, f"{name}  {places[name]}") for name, lines in classes.items()]
    for kind, most in MOST.items():
        large = sorted(((lines, what) for one, lines, what in found if one == kind and lines > most), reverse=True)
        print(f"{kind}: {len(large)} of more than {most} lines")
        for lines, what in large:
            print(f"  {lines:6}  {what}")


if __name__ == "__main__":
    main()
