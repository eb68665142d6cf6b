"""Rows of results: the content of build/bench/results.json, and the table on the terminal."""

import json
from dataclasses import dataclass
from typing import Callable, Optional

from .compare import Spread


@dataclass(frozen=True)
class Target:
    """The target of a row. `holds` gets our median, the peer's, and the median ratio; the latter two may be None."""

    text: str
    holds: Callable

    def met(self, ours, peer, ratio):
        return bool(self.holds(ours, peer, ratio))


def ratio_at_least(limit):
    return Target(f"ratio >= {limit:g}", lambda ours, peer, ratio: ratio is not None and ratio >= limit)


def ratio_at_most(limit):
    return Target(f"ratio <= {limit:g}", lambda ours, peer, ratio: ratio is not None and ratio <= limit)


def ratio_within(least, most):
    return Target(f"ratio {least:g}..{most:g}", lambda ours, peer, ratio: ratio is not None and least <= ratio <= most)


def at_least(limit):
    return Target(f">= {limit:,g}", lambda ours, peer, ratio: ours >= limit)


def at_most(limit):
    return Target(f"<= {limit:,g}", lambda ours, peer, ratio: ours <= limit)


@dataclass
class Row:
    """One claim. `ratio` is the median of the pairs' ratios, not the ratio of the medians, so noise that lasts longer
    than a pair cancels. A row without a target is for information, and its `met` is null, as if `ours` is None: then the
    note says why nothing was measured."""

    name: str
    ours: Optional[Spread]
    unit: str
    peer: str = ""
    peer_value: Optional[Spread] = None
    ratio: Optional[Spread] = None
    target: Optional[Target] = None
    runs: int = 1
    note: str = ""

    @property
    def met(self):
        if self.target is None or self.ours is None:
            return None
        return self.target.met(self.ours.median, median(self.peer_value), median(self.ratio))

    def as_json(self):
        return {
            "name": self.name,
            "ours": rounded(median(self.ours)),
            "unit": self.unit,
            "peer": self.peer,
            "peer_value": rounded(median(self.peer_value)),
            "ratio": rounded(median(self.ratio)),
            "target": self.target.text if self.target else None,
            "met": self.met,
            "runs": self.runs,
            "note": self.note,
            "ours_range": ends(self.ours),
            "peer_range": ends(self.peer_value),
            "ratio_range": ends(self.ratio),
        }


def median(spread):
    return None if spread is None else spread.median


def ends(spread):
    return None if spread is None else [rounded(spread.least), rounded(spread.most)]


def rounded(value):
    return None if value is None else float(f"{value:.4g}")


def load(path):
    """The content of a file of results, which save() wrote; None if there is none, or one of another format."""
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return kept if isinstance(kept, dict) and "rows" in kept else None


def save(path, about, others, fresh):
    """Writes the facts `about` the run, the rows of an earlier one that were not measured again, and the fresh rows."""
    names = {row["name"] for row in fresh}
    rows = [row for row in others if row["name"] not in names] + fresh
    path.write_text(json.dumps({**about, "rows": rows}, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


# ------------------------------------------------------------------ the table

COLUMNS = ("what", "ours", "peer", "ratio (min–max)", "target", "")


def number(value):
    if value is None:
        return "–"
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def cells(row):
    ours = number(row["ours"])
    if row["ours_range"] is not None:
        ours += f" {row['unit']} ({number(row['ours_range'][0])}–{number(row['ours_range'][1])})"
    peer = f"{number(row['peer_value'])} {row['peer']}" if row["peer"] else ""
    ratio = ""
    if row["ratio"] is not None:
        ratio = f"{row['ratio']:.2f} ({row['ratio_range'][0]:.2f}–{row['ratio_range'][1]:.2f})"
    met = {True: "met", False: "MISSED", None: ""}[row["met"]]
    return (row["name"], ours, peer, ratio, row["target"] or "", met)


def table(rows):
    """Formats rows of JSON as text, each with its note below."""
    lines = [COLUMNS, *map(cells, rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(COLUMNS))]
    text = []
    for at, line in enumerate(lines):
        text.append("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip())
        note = rows[at - 1]["note"] if at else ""
        if note:
            text.append(f"    {note}")
    return "\n".join(text)
