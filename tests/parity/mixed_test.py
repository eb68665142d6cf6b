"""Clusters whose workers are written in different languages: Perl, Python, Lua 5.1, LuaJIT and Lua 5.4."""

import os
import pathlib
import re
import socket
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
LANGUAGES = {
    "python": [sys.executable, ".py"],
    "perl": ["perl", ".pl"],
    "lua5.1": ["lua5.1", ".lua"],
    "luajit": ["luajit", ".lua"],
    "lua5.4": ["lua5.4", ".lua"],
}
ROUNDS = 12


def start(language, program, rank, nodes, listener, settings):
    interpreter, suffix = LANGUAGES[language]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("POLYVERSO_")}
    environment.update(settings)
    environment["POLYVERSO_NODES"] = str(nodes)
    environment["POLYVERSO_RANK"] = str(rank)
    environment["POLYVERSO_MASTER"] = f"127.0.0.1:{listener.getsockname()[1]}"
    if rank == 0:
        environment["POLYVERSO_LISTEN_FD"] = str(listener.fileno())
    return subprocess.Popen(
        [interpreter, program + suffix], cwd=HERE, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        pass_fds=[listener.fileno()] if rank == 0 else [],
    )


def outputs(languages, program="worker", **settings):
    """Returns the output lines of each worker, by rank."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        workers = [start(name, program, rank, len(languages), listener, settings) for rank, name in enumerate(languages)]
    texts = []
    try:
        for language, worker in zip(languages, workers):
            text, _ = worker.communicate(timeout=60)
            assert worker.returncode == 0, f"{language}: {text}"
            texts.append(text.splitlines())
    finally:
        for worker in workers:
            if worker.poll() is None:
                worker.kill()
                worker.wait()
    return texts


def numbers(line):
    return [float(word) for word in line.split()[1:]]


@pytest.mark.parametrize(
    "languages", [["perl", "python", "luajit"], ["lua5.4", "lua5.1", "perl"], ["python", "lua5.4"]]
)
def test_sync_workers_get_the_same_bits(languages):
    first, *others = outputs(languages, POLYVERSO_SYNC="1")
    assert len(first) == ROUNDS + 1
    assert len(set(first)) == len(first), "every round changes the table"
    assert numbers(first[-1]) == numbers(first[-2])
    for language, lines in zip(languages[1:], others):
        assert lines == first, f"{language} and {languages[0]} differ"


def test_sync_bits_do_not_depend_on_who_is_where():
    orders = ["perl", "python", "luajit"], ["lua5.1", "perl", "python"]
    one, other = (outputs(languages, POLYVERSO_SYNC="1") for languages in orders)
    assert one == other


def test_async_workers_end_with_the_sum_of_all_adds():
    languages = ["luajit", "perl", "python"]
    expected = [0.0] * 15
    for worker in range(len(languages)):
        for turn in range(ROUNDS):
            for k in range(15):
                expected[k] += ((k * 7 + worker * 13 + turn * 29) % 31 - 15) / 3 * 10**worker
            for row in (worker, 4):
                for col, value in enumerate((1 / 3, -2 / 3, 1 + worker)):
                    expected[row * 3 + col] += value
    for lines in outputs(languages):
        assert numbers(lines[-1]) == pytest.approx(expected, rel=1e-4, abs=1e-3)


@pytest.mark.parametrize("languages", [["python", "perl", "lua5.4"], ["lua5.1", "python"], ["perl", "luajit"]])
def test_stores_are_shared_by_languages(languages):
    first, *others = outputs(languages, "store")
    assert len(first) == 6 * 3 + 1
    assert len(set(first)) == len(first), "every round changes every key"
    assert numbers(first[-1]) == pytest.approx([(k * 7 + 99 * 29) % 31 / 3 - 5 for k in range(15)], rel=1e-6)
    for language, lines in zip(languages[1:], others):
        assert lines == first, f"{language} and {languages[0]} differ"


@pytest.mark.parametrize("languages", [["python", "perl", "lua5.4"], ["luajit", "python", "perl"], ["perl", "lua5.1", "python"]])
def test_ranks_reduce_together(languages):
    """All-gather, reduce-scatter, gather, scatter, alltoall, asynchronous operations, send and recv, custom functions, uneven endings, a function that fails, and the order of keys."""
    lines = [
        "gathered 0 0 1 10 2 20",
        "scattered 0 6 12 18 24 30",
        "exchanged 15 900 12 9 0 0 18 18",
        "gathered at 1 0 5 1 5 2 5",
        "best 3 3 1",
        "steps 6 14 3",
        "failed",
        "after 3",
        "keys 3 6 9 12 15",
    ]
    for language, got in zip(languages, outputs(languages, "ranks")):
        assert got == lines, language


def has_ai_mxnet():
    """Whether the build tree has AI::MXNet, which train.pl uses; a tree without the compatibility modules has not."""
    return any((pathlib.Path(folder) / "AI" / "MXNet.pm").exists() for folder in os.environ["PERL5LIB"].split(":"))


@pytest.mark.parametrize("kind, reached", [("dist_sync", 0.94), ("dist_async", 0.9)])
def test_the_example_trains_in_several_languages(kind, reached):
    examples = HERE.parents[1] / "examples" / "kvstore"
    options = ["--type", kind, "--epochs", "30"]
    command = ["polyverso", "run", "--servers", "2", "--", sys.executable, str(examples / "train.py"), *options]
    command += ["---", "luajit", str(examples / "train.lua"), *options]
    if has_ai_mxnet():
        command += ["---", "perl", str(examples / "train.pl"), *options]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout
    final = re.search(r"final accuracy ([\d.]+)", done.stdout)
    assert final and float(final[1]) >= reached, done.stdout
