"""One rank that runs PyTorch's own tests of torch.distributed, as its wheel has them, on the backend "polyverso".

    python3 torch_own_ranks.py RANK RANKS FOLDER PLAN

FOLDER: an empty one, for all ranks. PLAN: a file of JSON, {BACKEND: [TEST...]}. BACKEND is what PyTorch's tests are told:
with "gloo" and "mpi" those run that PyTorch has for these two only; the process groups are of "polyverso" all the same.
Rank 0 calls all other tests without a process group, which shows whether PyTorch skips them. Prints one line of JSON
for each. All run in the same processes one after the other, because importing PyTorch takes longer than a test.
"""

import contextlib
import datetime
import importlib
import json
import os
import pathlib
import sys
import traceback
import unittest

RANK, RANKS, FOLDER, PLAN = int(sys.argv[1]), int(sys.argv[2]), pathlib.Path(sys.argv[3]), json.loads(pathlib.Path(sys.argv[4]).read_text())
LIMIT = datetime.timedelta(seconds=30)
# PyTorch's tests read these when they are imported.
os.environ.update(BACKEND="polyverso", WORLD_SIZE=str(RANKS), TEMP_DIR=str(FOLDER), MASTER_ADDR="127.0.0.1", INIT_METHOD=f"file://{FOLDER}/again")

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch.testing._internal import common_distributed, common_utils  # noqa: E402

import polyverso.torch  # noqa: E402  (registers the backend)

if os.environ.get("ELSEWHERE"):  # as if tensors were on CUDA devices, from which the backend copies them
    polyverso.torch.process_group._is_here = lambda tensor: False

for feature in ("ddp", "gpu", "subgroup", "plugin"):
    common_distributed.DistTestCases.backend_feature[feature].add("polyverso")
EXITS = {skip.exit_code: skip.message for skip in common_distributed.TEST_SKIPS.values()}

from torch.testing._internal.distributed import distributed_test  # noqa: E402


def tests_for(backend):
    """PyTorch's tests as a class, for a backend of this name."""
    os.environ["BACKEND"] = backend
    common_utils.set_rng_seed(1234)  # PyTorch 1.13 draws values for all ranks at the import
    importlib.reload(distributed_test)
    # With the name of any other backend the tests of groups of two ranks would ask for eight processes.
    os.environ["BACKEND"] = "mpi"
    own = {"rank": RANK, "world_size": RANKS}
    return type("OneRank", (distributed_test.DistributedTest._DistTestBase, common_utils.TestCase), own)


def with_ours(function):
    """The function, with our backend for the one that it is told."""

    def call(*arguments, **named):
        if named.get("backend") in PLAN:
            named["backend"] = "polyverso"
        return function(*arguments, **named)

    return call


def begin(backend, name):
    folder = FOLDER / backend / name
    for part in ("barrier", "test_dir", "init_dir"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    os.environ["TEMP_DIR"] = str(folder)
    distributed_test.Barrier.barrier_id = 0
    dist.init_process_group("polyverso", init_method=f"file://{folder}/store", rank=RANK, world_size=RANKS, timeout=LIMIT)


def outcome(test):
    """Calls the test. Returns ("passed" | "skipped" | "failed", why)."""
    if getattr(test, "__unittest_skip__", False):  # PyTorch's skips leave this to unittest
        return "skipped", test.__unittest_skip_why__
    try:
        common_utils.set_rng_seed(1234)
        test()
    except unittest.SkipTest as skip:
        return "skipped", str(skip)
    except SystemExit as skip:
        return "skipped", EXITS.get(skip.code, f"exit status {skip.code}")
    except BaseException:
        return "failed", traceback.format_exc()
    return "passed", ""


def outcome_in_group(backend, case, name):
    begin(backend, name)
    try:
        return outcome(getattr(case(name), name))
    finally:
        with contextlib.suppress(Exception):
            dist.destroy_process_group()  # returns when all ranks have come


def tell(backend, name, is_wanted, result, why):
    told = {"backend": backend, "test": name.removeprefix("test_"), "wanted": is_wanted, "result": result, "why": why}
    print(json.dumps(told), flush=True)


def main():
    torch.set_num_threads(1)
    dist.init_process_group, dist.new_group = with_ours(dist.init_process_group), with_ours(dist.new_group)
    for backend, wanted in PLAN.items():
        case = tests_for(backend)
        names = [name for name in dir(case) if name.startswith("test_")]
        for name in filter(wanted.__contains__, names):
            tell(backend, name, True, *outcome_in_group(backend, case, name))
        for name in names if RANK == 0 else []:
            if name not in wanted:
                tell(backend, name, False, *outcome(getattr(case(name), name)))


main()
