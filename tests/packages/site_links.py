#!/usr/bin/env python3
"""Checks the built site: every link and anchor has a target, and no page loads anything from another host.

    site_links.py FOLDER
"""

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADING = {"script": "src", "img": "src", "iframe": "src", "source": "src", "video": "src", "audio": "src", "object": "data", "embed": "src"}
FOREIGN = re.compile(r"(?:https?:)?//", re.IGNORECASE)
STYLE = re.compile(r"@import\s+[\"'](\S+?)[\"']|url\(\s*[\"']?([^\"')]+)")
SCRIPT = re.compile(r"(?:fetch|import|importScripts|XMLHttpRequest|sendBeacon)\s*\(\s*[\"'`]((?:https?:)?//[^\"'`]+)|\.src\s*=\s*[\"'`]((?:https?:)?//[^\"'`]+)")


class Page(HTMLParser):
    """What a page loads, links to, and offers as anchors."""

    def __init__(self, text):
        super().__init__()
        self.loads, self.links, self.anchors = [], [], set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.anchors.update(given[name] for name in ("id", "name") if given.get(name))
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])
        if tag == "link" and given.get("rel") not in ("canonical", "index", "search", "next", "prev", "author"):
            self.loads.append(given.get("href", ""))
        if tag in LOADING and given.get(LOADING[tag]):
            self.loads.append(given[LOADING[tag]])
        self.loads += [found[0] or found[1] for found in STYLE.findall(given.get("style") or "")]


def problems(root):
    pages = {file: Page(file.read_text(encoding="utf-8")) for file in root.rglob("*.html")}
    for file, page in sorted(pages.items()):
        yield from (f"{file.relative_to(root)}: loads {url}" for url in page.loads if FOREIGN.match(url))
        for url in page.links + page.loads:
            parts = urlsplit(url)
            if parts.scheme or parts.netloc:
                continue
            target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            if not target.is_file():
                yield f"{file.relative_to(root)}: there is no {url}"
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
                yield f"{file.relative_to(root)}: {url} has no such anchor"
    for file in sorted([*root.rglob("*.css"), *root.rglob("*.js")]):
        pattern = STYLE if file.suffix == ".css" else SCRIPT
        for found in pattern.findall(file.read_text(encoding="utf-8", errors="replace")):
            url = found[0] or found[1]
            if FOREIGN.match(url):
                yield f"{file.relative_to(root)}: loads {url}"


def main():
    root = Path(sys.argv[1]).resolve()
    pages = len(list(root.rglob("*.html")))
    found = list(problems(root))
    print("\n".join(found))
    print(f"{pages} pages, {len(found)} problems")
    return 1 if found or pages == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
