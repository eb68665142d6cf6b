"""The examples run as their README says, and the demo meets its targets."""

import pathlib
import re
import shutil
import subprocess
import sys

import pytest

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"
DIGITS = {
    "python": [sys.executable, str(EXAMPLES / "digits" / "train.py")],
    "perl": ["perl", str(EXAMPLES / "digits" / "train.pl")],
    "luajit": ["luajit", str(EXAMPLES / "digits" / "train.lua")],
    "lua5.1": ["lua5.1", str(EXAMPLES / "digits" / "train.lua")],
    "lua5.4": ["lua5.4", str(EXAMPLES / "digits" / "train.lua")],
}


def command(language, *arguments):
    if shutil.which(DIGITS[language][0]) is None:
        pytest.skip(f"there is no {language}")
    return [*DIGITS[language], *map(str, arguments)]


def final_accuracy(text):
    return float(re.search(r"final accuracy ([\d.]+)", text)[1])


@pytest.mark.parametrize("language", DIGITS)
def test_a_script_alone_is_a_cluster_of_one(language):
    result = subprocess.run(command(language, "--epochs", 40, "--report", 20), capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stderr) == (0, "")
    assert final_accuracy(result.stdout) > 0.9


@pytest.mark.parametrize("first", DIGITS)
def test_all_languages_end_with_the_same_bits_in_sync_mode(run, first, tmp_path):
    languages = [first, *(language for language in ("python", "perl", "luajit") if language != first)][:3]
    line = []
    for language in languages:
        line += ["---"] * bool(line) + command(language, "--epochs", 40, "--report", 20, "--save", tmp_path)
    status, out, err = run("--servers", "1", "--sync", "--", *line)
    assert (status, err) == (0, "")
    assert final_accuracy(out) > 0.9
    weights = [path.read_bytes() for path in sorted(tmp_path.glob("weights-*.txt"))]
    assert len(weights) == 3 and weights[0].count(b"\n") == 650
    assert weights[0] == weights[1] == weights[2]


@pytest.mark.parametrize("servers", [0, 2])
def test_async_training_learns_too(run, servers):
    line = []
    for language in ("perl", "python", "luajit"):
        line += ["---"] * bool(line) + command(language, "--epochs", 60, "--report", 20)
    status, out, err = run("--servers", str(servers), "--", *line)
    assert (status, err) == (0, "")
    assert final_accuracy(out) > 0.88


def test_the_demo_meets_its_targets(tmp_path):
    demo = [sys.executable, str(EXAMPLES / "digits" / "demo.py"), "--folder", str(tmp_path)]
    result = subprocess.run(demo, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stdout + result.stderr
    last = result.stdout.splitlines()[-1]
    numbers = r"demo: single=0\.\d{3} sync=0\.\d{3} async=0\.\d{3} seconds=\d+\.\d plot=(.*)"
    assert pathlib.Path(re.fullmatch(numbers, last)[1]).read_bytes().startswith(b"\x89PNG")
