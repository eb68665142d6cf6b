"""Publishes results: a file for each kind of machine in docs/benchmarks/, their tables in docs/benchmarks.md, and the picture
of all-reduce, which the README shows.

    python3 -m bench.publish [--check] [DOCS]     `make bench BENCH=--publish` does it for a run

Without --check, writes the tables again from docs/benchmarks/*.json. With it, fails if the page or the picture shows other
figures than the files.
"""

import argparse
import json
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from harness import result  # noqa: E402
from plots import peers  # noqa: E402

BEGIN, END = "<!-- results: written by bench/publish.py -->\n", "<!-- end of results -->\n"
HEADINGS = ("what", "ours", "peer", "ratio (range)", "target", "")


def take(file, docs):
    """Takes a run's file into `docs`, and writes everything that depends on it. Returns the new file's path."""
    run = json.loads(file.read_text(encoding="utf-8"))
    path = docs / "benchmarks" / f"{run['kind']}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(run, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    write(docs)
    peers.draw(picture(docs), run)
    return path


def picture(docs):
    return docs / "pictures" / "allreduce-peers.svg"


def runs(docs):
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted((docs / "benchmarks").glob("*.json"))]


def heading(run):
    return f"### {run['processor']}"


def score(run):
    targets = [row["met"] for row in run["rows"] if row["met"] is not None]
    return f"{sum(targets)} of {len(targets)}"


def cell(text):
    return re.sub(r"\s+", " ", text).replace("|", "\\|")


def lines_of(run):
    yield heading(run)
    yield ""
    yield f"Measured on {run['date']} at commit `{run['commit']}`, {run['system']}."
    yield f"With {run['effort']} effort, {score(run)} targets were met."
    yield ""
    yield f"| {' | '.join(HEADINGS)} |"
    yield "|---" * len(HEADINGS) + "|"
    for row in run["rows"]:
        cells = result.cells(row)
        if row["met"] is False:
            cells = (*cells[:-1], "**missed**")
        yield "| " + " | ".join(map(cell, cells)) + " |"
    yield ""


def written(page, docs):
    """The page with the tables of the files."""
    text = page.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        sys.exit(f"{page} has no lines {BEGIN.strip()} and {END.strip()}")
    tables = [line for run in runs(docs) for line in lines_of(run)]
    return before + BEGIN + "\n".join(["", *tables]) + END + after


def write(docs):
    page = docs / "benchmarks.md"
    page.write_text(written(page, docs), encoding="utf-8")


def check(docs):
    page = docs / "benchmarks.md"
    if written(page, docs) != page.read_text(encoding="utf-8"):
        sys.exit(f"{page} shows other figures than docs/benchmarks/: type python3 -m bench.publish")
    if not runs(docs):
        return
    drawn = picture(docs).read_text(encoding="utf-8")
    if not any(peers.mark_of(run) in drawn for run in runs(docs)):
        sys.exit(f"{picture(docs)} shows no run of docs/benchmarks/: publish one")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("docs", nargs="?", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent / "docs")
    options = parser.parse_args()
    (check if options.check else write)(options.docs)


if __name__ == "__main__":
    main()
