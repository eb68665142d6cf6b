#!/usr/bin/env python3
"""Lists what is larger than a reader takes in at once: files of more than 600 lines, functions of more than 60, classes of more than 300
over all their files. Fails for a class or a file without a reason in docs/large-classes.md, and for a reason without its class or file.
Needs universal-ctags.

    sizes.py
"""

import collections
import json
import re
import subprocess
import sys

REASONS = "docs/large-classes.md"
MOST = {"file": 600, "function": 60, "class": 300}


def sources(folders):
    listed = subprocess.run(["git", "ls-files", "--", *folders], capture_output=True, text=True, check=True).stdout.split()
    return [path for path in listed if path.endswith((".cpp", ".hpp"))]


def tags(paths):
    """Every function, class and struct with its first and last line and its scope."""
    command = ["ctags", "--output-format=json", "--fields=+neKsS", "--kinds-C++=cfs", "--language-force=C++", "-f", "-", "-L", "-"]
    listed = subprocess.run(command, input="\n".join(paths), capture_output=True, text=True, check=True).stdout
    return [tag for tag in map(json.loads, listed.splitlines()) if tag.get("_type") == "tag" and "end" in tag]


def complaints(large):
    """Compares the large classes and files with those of REASONS."""
    with open(REASONS, encoding="utf-8") as file:
        explained = set(re.findall(r"^\| `([^`]+)` \|", file.read(), re.M))
    names = {what.split("  ")[0] for what in large}
    for name in sorted(names - explained):
        yield f"{name} is large: split it, or give the reason in {REASONS}"
    for name in sorted(explained - names):
        yield f"{name} is no longer large: remove it from {REASONS}"


def main():
    paths = sources(["core", "capi/src", "tools"])
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
    listed_large = []
    for kind, most in MOST.items():
        large = sorted(((lines, what) for one, lines, what in found if one == kind and lines > most), reverse=True)
        print(f"{kind}: {len(large)} of more than {most} lines")
        for lines, what in large:
            print(f"  {lines:6}  {what}")
        listed_large += [what for _, what in large]
    wrong = list(complaints(listed_large))
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
