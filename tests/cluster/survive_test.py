"""examples/survive: a training loses nothing to kills, and its demo would notice if it did."""

import importlib.util
import pathlib
import re
import subprocess
import sys

DEMO = pathlib.Path(__file__).resolve().parents[2] / "examples" / "survive" / "demo.py"


def test_a_training_survives_kills(tmp_path):
    command = [sys.executable, DEMO, "--seconds", "12", "--every", "2", "--folder", tmp_path]
    result = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert (result.returncode, result.stderr) == (0, ""), result.stdout + result.stderr
    last = re.fullmatch(r"survive: kills=(\d+) loss=\d\.\d{4} undisturbed=\d\.\d{4} seconds=\d+\.\d plot=(.*)", result.stdout.splitlines()[-1])
    assert int(last[1]) >= 2, result.stdout  # a server and a worker; the others may come too late on a slow machine
    assert re.search(r"^checked: \d+ processes were killed; each of \d{4} acknowledged steps was counted exactly once", result.stdout, re.MULTILINE)
    assert pathlib.Path(last[2]).read_bytes().startswith(b"\x89PNG")


def test_the_demo_notices_wrong_counters():
    specification = importlib.util.spec_from_file_location("survive_demo", DEMO)
    demo = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(demo)
    place = {"lives": 2, "handed_out": 10, "acknowledged": 9, "unknown": 1, "least": 9, "most": 10}
    assert demo.counted("a training", {"places": [place]}) == []
    assert demo.counted("a training", {"places": [place | {"least": 8}]}) == ["a training: 1 acknowledged steps of worker 1 were lost"]
    assert demo.counted("a training", {"places": [place | {"most": 11}]}) == ["a training: 1 steps of worker 1 were counted twice"]
