#!/usr/bin/env python3
"""Checks the references of the documents: links must lead to files and headings, and the glossary's terms must exist.

    references.py SOURCE

A row of docs/glossary.md has its terms in bold in the first column, and links in the last. Each term must be in the
name or the text of one of these files.
"""

import re
import sys
from pathlib import Path

DOCUMENTS = ("*.md", "docs/*.md", "data/*.md", "examples/*/*.md")
CODE = re.compile(r"^( *)(```|~~~).*?^\1\2$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)|^\[[^\]]+\]: (\S+)$", re.MULTILINE)
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
ELSEWHERE = re.compile(r"[a-z]+:")  # https:, doi:


def without_code(text):
    """The text with its code blocks replaced by blank lines, so line numbers stay the same."""
    return CODE.sub(lambda match: "\n" * match[0].count("\n"), text)


def anchors(document):
    """The anchors of a document's headings, as GitHub makes them."""
    seen = {}
    for heading in HEADING.findall(without_code(document.read_text(encoding="utf-8"))):
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


def main():
    source = Path(sys.argv[1]).resolve()
    documents = sorted(document for pattern in DOCUMENTS for document in source.glob(pattern))
    glossary = source / "docs" / "glossary.md"
    bad = 0
    for document in documents:
        complaints = [*broken_links(document), *(lost_terms(document) if document == glossary else [])]
        for line, complaint in complaints:
            print(f"{document.relative_to(source)}:{line}: {complaint}")
        bad += len(complaints)
    print(f"{len(documents)} documents, {bad} complaints")
    return 1 if bad or glossary not in documents else 0


if __name__ == "__main__":
    sys.exit(main())
