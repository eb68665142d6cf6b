"""Interpreters of several languages, as the workers of one cluster, make random calls: each ends normally, whatever the
others do to its tables."""

import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
SEED = os.environ.get("POLYVERSO_TEST_SEED", "1")
CALLS = os.environ.get("POLYVERSO_TEST_CALLS", "1000")


def python_script():
    spec = importlib.util.spec_from_file_location("random_handles", ROOT / "python" / "tests" / "test_random_handles.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.SCRIPT


def test_random_calls_in_one_cluster():
    # The Lua program is a busted spec, which finds its helpers in its own folder.
    lua = ["sh", "-c", f"cd {ROOT / 'lua'} && exec \"$@\"", "sh"]
    workers = [
        ["perl", str(ROOT / "perl" / "t" / "random_handles.t")],
        [sys.executable, "-c", python_script(), SEED, CALLS, "4", "200"],
        [*lua, "luajit", shutil.which("busted"), "spec/random_handles_spec.lua"],
        [*lua, "lua5.4", shutil.which("busted"), "spec/random_handles_spec.lua"],
    ]
    command = ["polyverso", "run", "--no-color", "--keep-going"]
    for place, worker in enumerate(workers):
        command += ["---" if place else "--", *worker]
    environment = {**os.environ, "POLYVERSO_TEST_SEED": SEED, "POLYVERSO_TEST_CALLS": CALLS}
    done = subprocess.run(command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=250, check=False)
    assert done.returncode == 0, done.stdout
