"""The examples run as documented in their README, and the demo meets its targets."""

import importlib.util
import pathlib
import re
import shutil
import subprocess
import sys
import types

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
    demo = [sys.executable, str(EXAMPLES / "digits" / "demo.py"), "--folder", str(tmp_path), "--repeats", "1"]
    result = subprocess.run(demo, capture_output=True, text=True, timeout=200)
    assert result.returncode == 0, result.stdout + result.stderr
    last = result.stdout.splitlines()[-1]
    numbers = r"demo: single=0\.\d{3} sync=0\.\d{3} async=0\.\d{3} one=\d+\.\d\ds two=\d+\.\d\ds seconds=\d+\.\d plot=(.*)"
    assert pathlib.Path(re.fullmatch(numbers, last)[1]).read_bytes().startswith(b"\x89PNG")
    assert re.search(r"^working together (pays|does not pay in this measurement): one worker took ", result.stdout, re.MULTILINE)


def test_the_demo_tells_whether_a_second_worker_pays(demo):
    def run(seconds, *cpu, loss=0.5, accuracy=0.97):
        return types.SimpleNamespace(seconds=seconds, cpu=cpu, curve=[(0, 0.0, 2.0), (9, seconds, loss)], accuracy=accuracy)

    one = run(6, 6)
    assert "working together pays: one worker took 6.00 s, two took 3.00 s for the same steps, 2.00 times" in demo.verdict(one, run(3, 3, 3), 2)
    assert "does not pay in this measurement: one worker took 6.00 s, two took 6.00 s" in demo.verdict(one, run(6, 3, 3), 2)
    assert "had a core for only 3.00 s" in demo.verdict(one, run(6, 3, 3), 2)
    assert "there is only one core" in demo.verdict(one, run(6, 3, 3), 1)
    assert "needed 12.00 s of processor time, one needed 6.00 s" in demo.verdict(one, run(6, 6, 6), 2)
    # Slowness is no error; another result is.
    assert demo.disagreements(one, run(60, 60, 60, loss=0.5001)) == []
    assert "differ by 20.0%" in demo.disagreements(one, run(3, 3, 3, loss=0.6))[0]
    assert "two workers: accuracy 0.5000" in demo.disagreements(one, run(3, 3, 3, accuracy=0.5))[0]


@pytest.mark.parametrize("pays", [True, False])
def test_the_demo_draws_both_outcomes(demo, pays, tmp_path):
    training = [types.SimpleNamespace(name=name, curve=[(0, 2.0), (5, 1.0)], accuracy=0.9) for name in ("single", "sync", "async")]
    one, two = (types.SimpleNamespace(seconds=s, cpu=(s,), curve=[(0, 0.0, 2.0), (9, s, 1.0)]) for s in (6.0, 3.0 if pays else 6.0))
    demo.draw(training, one, two, "a machine", tmp_path / "loss.svg")
    assert b"<svg" in (tmp_path / "loss.svg").read_bytes()


@pytest.fixture
def demo():
    specification = importlib.util.spec_from_file_location("digits_demo", EXAMPLES / "digits" / "demo.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


# ------------------------------------------------------------------ word vectors

LM = {
    "python": [sys.executable, str(EXAMPLES / "lm" / "train.py")],
    "perl": ["perl", str(EXAMPLES / "lm" / "train.pl")],
    "luajit": ["luajit", str(EXAMPLES / "lm" / "train.lua")],
}


def say(*words, timeout=60):
    """Runs a command that must succeed. Returns its standard output."""
    result = subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=timeout)
    assert (result.returncode, result.stderr) == (0, ""), result.stdout + result.stderr
    return result.stdout


@pytest.fixture
def little_text(tmp_path):
    """A folder with a small corpus."""
    say(sys.executable, EXAMPLES / "lm" / "corpus.py", "--folder", tmp_path, "--tokens", 12_000)
    return tmp_path


@pytest.mark.parametrize("language", LM)
def test_a_resumed_training_ends_with_the_bits_of_one_that_was_never_killed(language, little_text):
    train = [*LM[language], "--folder", little_text, "--epochs", 2, "--save-every", 7]
    vectors = little_text / "vectors.f32"
    losses = [float(loss) for loss in re.findall(r"loss ([\d.]+)", say(*train, "--report", 0))]
    assert losses[-1] < losses[0]
    never_killed = vectors.read_bytes()
    vectors.unlink()
    assert "saved after round 7 " not in say(*train, "--resume", 1)  # it resumes after the last checkpoint
    assert vectors.read_bytes() == never_killed
    say(*LM[language], "--folder", little_text, "--epochs", 2, "--seed", 2)
    assert vectors.read_bytes() != never_killed


def test_word_vectors_of_three_languages_survive_that_all_are_killed(tmp_path):
    out = say(sys.executable, EXAMPLES / "lm" / "demo.py", "--smoke", "--folder", tmp_path, timeout=120)
    last = out.splitlines()[-1]
    shared, plot = re.fullmatch(r"lm: shared=(0\.\d\d) seconds=\d+\.\d plot=(.*)", last).groups()
    assert float(shared) >= 0.05, out  # the share of nearest words that counting finds too; 0.01 by chance
    assert pathlib.Path(plot).read_bytes().startswith(b"\x89PNG")


# ------------------------------------------------------------------ logistic regression


@pytest.mark.parametrize("program", [[sys.executable, "train.py"], ["perl", "train.pl"]], ids=["python", "perl"])
def test_logistic_regression_alone(program, tmp_path):
    say(sys.executable, EXAMPLES / "logreg" / "testaments.py", "--folder", tmp_path, "--verses", 3000)
    interpreter, script = program
    out = say(interpreter, EXAMPLES / "logreg" / script, "--folder", tmp_path, "--epochs", 4)
    auc, stored, zero = re.search(r"auc ([\d.]+) loss [\d.]+ stored (\d+) zero (\d+)", out).groups()
    assert float(auc) > 0.9, out
    assert 0.3 * int(stored) < int(zero) < int(stored), out


def test_logistic_regression_of_two_languages(tmp_path):
    out = say(sys.executable, EXAMPLES / "logreg" / "demo.py", "--smoke", "--folder", tmp_path)
    last = re.fullmatch(r"logreg: auc=0\.\d{3} seconds=\d+\.\d plot=(.*)", out.splitlines()[-1])
    assert pathlib.Path(last[1]).read_bytes().startswith(b"\x89PNG")
