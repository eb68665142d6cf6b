#!/usr/bin/env python3
"""Describes the public ABI as text, and compares it with what is checked in.

    abi.py check|update EXPECTED --header HEADER --library LIBRARY --compiler CC [--nm NM]

The text names every exported symbol, and from the header, as the compiler sees it, every function with its types, the
size and offset of every field of every struct, and every enumerator. So a symbol that leaks, a field that moves or a
parameter that changes is a line in a diff, whoever reviews it.
"""

import argparse
import difflib
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ADVICE = """
The public ABI is not what {expected} says ("-" as checked in, "+" as built).
Programs compiled against the earlier header, and every language's module, depend on it. If the change is meant, type

    make abi-update

and commit the new {expected} with it; a "-" line in its diff breaks callers, so it asks for a new soname.
"""


def preprocessed(header, compiler):
    """The declarations of the header and of those beside it, with macros expanded and comments gone, as one string."""
    text = subprocess.run([compiler, "-E", str(header)], check=True, capture_output=True, text=True).stdout
    lines, own = [], False
    for line in text.splitlines():
        marker = re.match(r'# \d+ "([^"]*)"', line)
        if marker:
            own = Path(marker[1]).resolve().parent == header.resolve().parent
        elif own:
            lines.append(line)
    text = re.sub(r"__attribute__\s*\(\(.*?\)\)\s*\)?", "", " ".join(lines))
    return re.sub(r"\s+", " ", text)


def functions(text):
    """Prototypes, without the bodies of structs and enums."""
    flat = re.sub(r"\{[^}]*\}", "", text)
    for declaration in flat.split(";"):
        declaration = declaration.strip()
        if declaration.endswith(")") and not declaration.startswith("typedef"):
            yield re.search(r"(\w+) ?\(", declaration)[1], declaration


def structs(text):
    """(name, fields) of each `typedef struct name { ... } name;`."""
    for name, body in re.findall(r"typedef struct (\w+) \{([^}]*)\} \1 ?;", text):
        fields = []
        for declaration in filter(None, (part.strip() for part in body.split(";"))):
            for declarator in declaration.split(","):
                fields.append(re.search(r"(\w+) ?(\[[^]]*\])?$", declarator.strip())[1])
        yield name, fields


def enumerators(text):
    for body in re.findall(r"enum \w* ?\{([^}]*)\}", text):
        yield from (entry.split("=")[0].strip() for entry in body.split(",") if entry.strip())


def layout(header, text, compiler):
    """What a C program sees: it prints the sizes, offsets and values itself."""
    prints = []
    for name, fields in structs(text):
        prints.append(f'printf("struct {name} size %zu align %zu\\n", sizeof({name}), _Alignof({name}));')
        for field in fields:
            prints.append(f'printf("struct {name}.{field} offset %zu size %zu\\n", offsetof({name}, {field}), sizeof((({name} *)0)->{field}));')
    for name in enumerators(text):
        prints.append(f'printf("enum {name} = %lld\\n", (long long){name});')
    for name in re.findall(r"typedef \w+ (\w+) ?;", text):
        prints.append(f'printf("type {name} size %zu %s\\n", sizeof({name}), ({name})-1 < 0 ? "signed" : "unsigned");')
    with tempfile.TemporaryDirectory() as folder:
        source, program = Path(folder, "layout.c"), Path(folder, "layout")
        source.write_text(f'#include "{header}"\n#include <stddef.h>\n#include <stdio.h>\nint main(void) {{\n' + "\n".join(prints) + "\nreturn 0; }\n")
        subprocess.run([compiler, "-std=c11", "-o", str(program), str(source)], check=True)
        return subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout.splitlines()


def exports(library, nm):
    output = subprocess.run([nm, "-D", "--defined-only", str(library)], check=True, capture_output=True, text=True).stdout
    for line in output.splitlines():
        kind, symbol = line.split()[-2:]
        yield f"export {symbol}" if kind in "TA" else f"export {symbol} (kind {kind})"


def describe(header, library, compiler, nm):
    text = preprocessed(header, compiler)
    prototypes = [f"function {prototype}" for _, prototype in functions(text)]
    return sorted(exports(library, nm)) + prototypes + layout(header, text, compiler)


def strays(built, header, compiler):
    """What no update may accept: exports that are not in the header, and functions of it that are not exported."""
    declared = {name for name, _ in functions(preprocessed(header, compiler))}
    exported = {line.split()[1].split("@")[0] for line in built if line.startswith("export ")}
    exported = {symbol for symbol in exported if not re.fullmatch(r"POLYVERSO_[\d.]+", symbol)}  # the version's own name
    yield from (f"{symbol}: exported by the library, but not declared in the header" for symbol in sorted(exported - declared))
    yield from (f"{symbol}: declared in the header, but not exported by the library" for symbol in sorted(declared - exported))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("action", choices=["check", "update"])
    parser.add_argument("expected", type=Path)
    parser.add_argument("--header", type=Path, required=True)
    parser.add_argument("--library", type=Path, required=True)
    parser.add_argument("--compiler", required=True)
    parser.add_argument("--nm", default="nm")
    arguments = parser.parse_args()

    built = describe(arguments.header, arguments.library, arguments.compiler, arguments.nm)
    stray = list(strays(built, arguments.header, arguments.compiler))
    if stray:
        print("\n".join(stray))
        print("capi's version script decides what is exported; tests/abi checks it")
        return 1
    if arguments.action == "update":
        arguments.expected.write_text("\n".join(built) + "\n")
        return 0
    expected = arguments.expected.read_text().splitlines()
    difference = list(difflib.unified_diff(expected, built, "checked in", "built", lineterm="", n=0))
    if difference:
        print("\n".join(line for line in difference if not line.startswith("@@")))
        print(ADVICE.format(expected="tests/abi/" + arguments.expected.name))
    return 1 if difference else 0


if __name__ == "__main__":
    sys.exit(main())
