#!/usr/bin/env python3
"""Checks the references of the documents: links must lead to files and headings, and names of source files, names of
functions, and the glossary's terms must exist.

    references.py SOURCE

In README.md, CONTRIBUTING.md, docs/*.md and the pages of the interfaces' folders, a source file in backticks
(`rpc/client.cpp`) must exist, and a function in backticks (`run()`) must be a word of the sources. If the label of a
link is the name of a source file, the link must lead to a file of that name.

A row of docs/glossary.md has its terms in bold in the first column, and links in the last. Each term must be in the
name or the text of one of these files.

A file of the project that a comment in core/, capi/ or tools/ names must exist.

Each document is in the contents of the site, in docs/site/conf.py, unless it belongs to the pages below docs/reference.

No line of prose is longer than 100 characters, and the first paragraph of a document begins with what the document is:
"This page ...", "This example ...".
"""

import functools
import re
import sys
from pathlib import Path

DOCUMENTS = ("*.md", "docs/*.md", "data/*.md", "examples/*/*.md", "capi/**/*.md", "perl/**/*.md", "python/**/*.md", "lua/**/*.md")
CODE = re.compile(r"^( *)(```|~~~).*?^\1\2$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)|^\[[^\]]+\]: (\S+)$", re.MULTILINE)
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
OLD_ANCHOR = re.compile(r'^<a id="([\w-]+)"></a>$', re.MULTILINE)
ELSEWHERE = re.compile(r"[a-z]+:")  # https:, doi:

NAMING = ("README.md", "CONTRIBUTING.md", "docs/*.md", "capi/**/*.md", "perl/**/*.md", "python/**/*.md", "lua/**/*.md")
QUOTED = re.compile(r"`([^`\n]+)`")
LABELLED = re.compile(r"\[`?([^\]`]+)`?\]\(([^)#\s]+)[^)]*\)")
SOURCE_FILE = re.compile(r"[\w./-]+\.(?:hpp|cpp|h|c|py|pm|lua|i|md|fbs|sh)")
FUNCTION = re.compile(r"[\w:.]*?(\w+)\(\)")  # `run()`, `Loop::run()`, `node.run()`
SOURCES = ("core", "capi", "swig", "python", "perl", "lua", "tools")  # where functions are looked up
ROOTS = (".", "core", "capi/include")  # where paths in backticks begin, or else in the document's folder
NOT_OURS = {
    "launch.py",  # of DMLC's trackers
    "multiverso.h",  # of Multiverso
}


COMMENTED = ("core", "capi", "tools")  # sources whose comments may name only files that exist
COMMENT = re.compile(r"//.*|^\s*/?\*.*")
IN_COMMENT = re.compile(r"[\w/-]+\.(?:hpp|cpp|fbs|md|py|pml|sh)\b")
WIDTH = 100  # of prose; CONTRIBUTING.md says so
UNWRAPPED = re.compile(r"\||#|!?\[[^\]]*\]\S+$|\[[^\]]+\]: |<|    ")  # tables, headings, one long link, HTML, code
PURPOSE = re.compile(r"This (?:page|folder|parcel|example) |Polyverso is ")


def without_code(text):
    """The text with its code blocks replaced by blank lines, so line numbers stay the same."""
    return CODE.sub(lambda match: "\n" * match[0].count("\n"), text)


def anchors(document):
    """The anchors of a document's headings, as GitHub makes them, and those of its earlier headings, `<a id="..."></a>`."""
    seen = {}
    text = without_code(document.read_text(encoding="utf-8"))
    yield from OLD_ANCHOR.findall(text)
    for heading in HEADING.findall(text):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        anchor = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
        seen[anchor] = seen.get(anchor, -1) + 1
        yield anchor if seen[anchor] == 0 else f"{anchor}-{seen[anchor]}"


def broken_links(document):
    text = without_code(document.read_text(encoding="utf-8"))
    for match in LINK.finditer(text):
        target, _, anchor = (match[1] or match[2]).partition("#")
        if ELSEWHERE.match(target):
            continue
        file = document.parent / target if target else document
        line = text.count("\n", 0, match.start()) + 1
        if not file.exists():
            yield line, f"there is no {target}"
        elif anchor and anchor not in anchors(file):
            yield line, f"{target or document.name} has no heading #{anchor}"


@functools.cache
def files_of(source):
    folders = [path for path in source.iterdir() if path.is_dir() and path.name != "build" and path.name[0] != "."]
    return [path for path in source.iterdir() if path.is_file()] + [
        path for folder in folders for path in folder.rglob("*") if path.is_file()
    ]


@functools.cache
def words_of(source):
    words = set()
    for file in files_of(source):
        if file.relative_to(source).parts[0] in SOURCES:
            words.update(re.findall(r"\w+", file.read_text(encoding="utf-8", errors="replace")))
    return words


def exists(source, document, path):
    if "/" not in path:
        return any(file.name == path for file in files_of(source))
    return any((root / path).is_file() for root in (document.parent, *(source / name for name in ROOTS)))


def lost_names(source, document):
    text = without_code(document.read_text(encoding="utf-8"))
    for match in QUOTED.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        name, function = match[1], FUNCTION.fullmatch(match[1])
        if SOURCE_FILE.fullmatch(name) and name not in NOT_OURS and not exists(source, document, name):
            yield line, f"there is no file {name}"
        elif function and function[1] not in words_of(source):
            yield line, f"no source has the function {name}"
    for match in LABELLED.finditer(text):
        if SOURCE_FILE.fullmatch(match[1]) and Path(match[1]).name != Path(match[2]).name:
            yield text.count("\n", 0, match.start()) + 1, f"the link {match[1]} leads to {match[2]}"


def lost_files(source):
    """The names of files in the comments of sources, as (file, line, complaint)."""
    names = {file.name for file in files_of(source)}
    paths = [f"/{file.relative_to(source).as_posix()}" for file in files_of(source)]
    for file in files_of(source):
        if file.relative_to(source).parts[0] not in COMMENTED or file.suffix not in (".hpp", ".cpp", ".h", ".fbs", ".cu"):
            continue
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            comment = COMMENT.search(line)
            for name in IN_COMMENT.findall(comment[0]) if comment else ():
                known = any(path.endswith(f"/{name}") for path in paths) if "/" in name else name in names
                if not known:
                    yield file, number, f"a comment names {name}, which does not exist"


def lost_terms(glossary):
    for number, row in enumerate(glossary.read_text(encoding="utf-8").splitlines(), 1):
        columns = row.split(" | ")
        terms = re.findall(r"\*\*(.+?)\*\*", columns[0])
        files = [glossary.parent / match[1] for match in LINK.finditer(columns[-1])]
        if terms and not files:
            yield number, f"{terms[0]} names no file"
        texts = [f"{file.stem}\n{file.read_text(encoding='utf-8')}".lower() for file in files if file.is_file()]
        for term in terms:
            if not any(re.search(rf"(?<![a-z]){re.escape(term)}", text) for text in texts):
                yield number, f'"{term}" is in none of its files'


def badly_laid_out(document):
    lines = without_code(document.read_text(encoding="utf-8")).splitlines()
    for number, line in enumerate(lines, 1):
        if len(line) > WIDTH and not UNWRAPPED.match(line.strip() if line.strip().startswith("[") else line):
            yield number, f"a line of {len(line)} characters; prose wraps at {WIDTH}"
    number, line = next((number, line) for number, line in enumerate(lines, 1) if line and not line.startswith("#"))
    if not PURPOSE.match(line):
        yield number, 'the first sentence does not say what the document is for: "This page ..."'


def is_in_contents(source, document):
    name = document.relative_to(source).with_suffix("").as_posix()
    if name == "README":
        return True  # the front page
    if name.startswith("examples/"):
        name = name.split("/")[1]
    return f'"{name}"' in (source / "docs" / "site" / "conf.py").read_text(encoding="utf-8")


def main():
    source = Path(sys.argv[1]).resolve()
    documents = sorted(document for pattern in DOCUMENTS for document in source.glob(pattern))
    naming = {document for pattern in NAMING for document in source.glob(pattern)}
    glossary = source / "docs" / "glossary.md"
    bad = 0
    for document in documents:
        complaints = list(broken_links(document))
        complaints += badly_laid_out(document)
        if not is_in_contents(source, document):
            complaints.append((1, "the document is not in the contents of docs/site/conf.py"))
        if document in naming:
            complaints += lost_names(source, document)
        if document == glossary:
            complaints += lost_terms(document)
        for line, complaint in complaints:
            print(f"{document.relative_to(source)}:{line}: {complaint}")
        bad += len(complaints)
    for file, line, complaint in lost_files(source):
        print(f"{file.relative_to(source)}:{line}: {complaint}")
        bad += 1
    print(f"{len(documents)} documents, {bad} complaints")
    return 1 if bad or glossary not in documents else 0


if __name__ == "__main__":
    sys.exit(main())
