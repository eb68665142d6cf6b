"""How groups in shared memory choose the algorithms of their all-reduces: by trials, by their kept results, by the setting."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from conftest import COMMAND

# A rank of two: all-reduces of one size, whose bits depend on the order of additions. Its group logs its choices.
REDUCER = """
import sys
import numpy as np
import polyverso
from polyverso.group import Group
times, count = int(sys.argv[1]), int(sys.argv[2])
with polyverso.init() as node, Group(node) as group:
    mine = np.random.default_rng(group.rank).normal(size=count).astype("f4")
    expected = np.random.default_rng(0).normal(size=count).astype("f4") + np.random.default_rng(1).normal(size=count).astype("f4")
    for turn in range(times):
        sums = mine.copy()
        group.allreduce(sums)
        assert (sums == expected).all(), turn
    print("info:", group.info["tuning"], flush=True)
"""
COUNT = 65_536  # 256 KiB
CLASS = "256K private in-place"


def reduce(folder, times=100, count=COUNT, **variables):
    """What both ranks have logged. They always agree."""
    environment = {key: value for key, value in os.environ.items() if key not in ("XDG_CACHE_HOME", "HOME", "POLYVERSO_TUNING")}
    environment.update({"XDG_CACHE_HOME": str(folder)} if folder else {}, POLYVERSO_LOG_LEVEL="debug", **variables)
    command = [COMMAND, "run", "-n", "2", "--", sys.executable, "-c", REDUCER, str(times), str(count)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    told = [line.split(" ranks: ", 1)[1].strip() for line in done.stderr.splitlines() if "all-reduces of a group of 2 ranks: " in line]
    assert len(told) == 2 and told[0] == told[1], done.stderr
    assert done.stdout.count("info: " + told[0]) == 2, done.stdout
    return told[0]


def files(folder):
    return sorted((folder / "polyverso").glob("tuning-shm-*"))


def test_a_trial_is_kept_for_later_groups(tmp_path):
    first = reduce(tmp_path)
    assert first.startswith(f"{CLASS}: ") and " (tried: " in first and " us; " in first, first
    algorithm = first.removeprefix(f"{CLASS}: ").split(" ")[0]
    (kept,) = files(tmp_path)
    assert f"\n{CLASS}\t{algorithm}\n" in kept.read_text() and kept.stat().st_mode & 0o777 == 0o600
    assert reduce(tmp_path, times=2) == f"{CLASS}: {algorithm} (kept)"
    # Another class is tried, and does not replace this one.
    assert " (tried: " in reduce(tmp_path, count=1_000)
    assert reduce(tmp_path, times=2) == f"{CLASS}: {algorithm} (kept)"
    assert " (trying)" in reduce(tmp_path, times=2, POLYVERSO_TUNING="trial")


def test_what_is_kept_is_used_whatever_it_is(tmp_path):
    reduce(tmp_path)
    (kept,) = files(tmp_path)
    text = kept.read_text()
    algorithm = text.split(f"{CLASS}\t")[1].split("\n")[0]
    kept.write_text(text.replace(f"{CLASS}\t{algorithm}", f"{CLASS}\tshares-16k"))
    assert reduce(tmp_path, times=2) == f"{CLASS}: shares-16k (kept)"
    kept.write_text(text.replace(f"{CLASS}\t{algorithm}", f"{CLASS}\tunheard-of"))
    assert " (trying)" in reduce(tmp_path, times=2)


@pytest.mark.parametrize("damage", [b"", b"\0" * 100, b"polyverso tuning 1\n", None])
def test_a_damaged_file_is_as_none_and_is_replaced(tmp_path, damage):
    reduce(tmp_path)
    (kept,) = files(tmp_path)
    whole = kept.read_bytes()
    kept.write_bytes(whole[: len(whole) // 2] if damage is None else damage)
    assert " (tried: " in reduce(tmp_path)
    assert reduce(tmp_path, times=1).endswith(" (kept)")


def test_without_a_folder_all_works(tmp_path):
    assert " (tried: " in reduce(None)
    assert " (tried: " in reduce(None, HOME="/proc/nowhere")
    blocked = tmp_path / "file"
    blocked.write_text("no folder")
    assert " (tried: " in reduce(blocked)


def test_the_setting_makes_it_reproducible(tmp_path):
    assert reduce(tmp_path, POLYVERSO_TUNING="fixed") == f"{CLASS}: whole-staged (fixed)"
    for algorithm in ("shares", "shares-16k", "whole-staged-16k", "whole-staged-256k", "whole-direct"):
        assert reduce(tmp_path, times=5, POLYVERSO_TUNING=algorithm) == f"{CLASS}: {algorithm} (named)"
    assert reduce(tmp_path, times=5, count=2_000, POLYVERSO_TUNING="inline") == "8K: inline (named)"
    assert files(tmp_path) == []


def test_a_setting_that_is_none_is_told():
    program = "import polyverso; polyverso.init(text='tuning=fast')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30)
    assert done.returncode == 1 and 'tuning="fast" is none of auto, trial, fixed, nor an algorithm of all-reduces: inline, shares, ' in done.stderr


def test_the_doctor_tries_all_classes(tmp_path):
    environment = dict(os.environ, XDG_CACHE_HOME=str(tmp_path))
    done = subprocess.run([shutil.which(COMMAND), "doctor", "--tune", "--json"], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    decisions = {decision["class"]: decision for decision in json.loads(done.stdout)["ways"]}
    assert {"4K", "32K", "64K private", "1M tensors", "1M tensors in-place", "16M private in-place"} <= set(decisions)
    for decision in decisions.values():
        assert list(decision) == ["class", "most_bytes", "way", "why", "measured"]
        assert decision["why"] == "tried" and len(decision["measured"]) > 1, decision
        assert decision["measured"][0]["way"] == decision["way"], decision
    assert reduce(tmp_path, times=1) == f"{CLASS}: {decisions[CLASS]['way']} (kept)"
