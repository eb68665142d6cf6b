"""PyTorch's own tests of torch.distributed on our backend: its wheel has them, and nothing of them is copied here.

They are in torch.testing._internal.distributed.distributed_test; torch_own_ranks.py runs them. Each name below must pass,
if the installed PyTorch has it. Every other test must be one of CANT, or skipped by PyTorch for a reason as in SKIPPED.
"""

import collections
import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

pytest.importorskip("expecttest", reason="PyTorch's tests need it: make test-frameworks installs it")

RANKS = 4
PROGRAM = pathlib.Path(__file__).with_name("torch_own_ranks.py")

# By the backend for which PyTorch has the test: without "test_".
MUST_PASS = {
    "polyverso": """
        Backend_enum_class DistributedDataParallelCPU DistributedDataParallelCPU_grad_is_view DistributedDataParallel_requires_grad
        all_gather all_gather_coalesced_complex all_gather_coalesced_full_group all_gather_coalesced_group all_gather_coalesced_simple
        all_gather_coalesced_with_empty all_gather_complex all_gather_full_group all_gather_group all_gather_object_default_pg
        all_gather_object_subgroup all_reduce_coalesced_max_complex_unsupported all_reduce_complex_unsupported_ops all_reduce_full_group_max
        all_reduce_full_group_min all_reduce_full_group_product all_reduce_full_group_sum all_reduce_group_max all_reduce_group_min
        all_reduce_group_product all_reduce_group_sum all_reduce_max all_reduce_min all_reduce_product all_reduce_sum all_reduce_sum_async
        all_reduce_sum_complex barrier barrier_full_group barrier_group broadcast broadcast_full_group broadcast_group ddp_create_graph
        ddp_logging_data_cpu destroy_full_group destroy_group dump_DDP_relevant_env_vars gather gather_checks gather_full_group gather_group
        gather_object gather_object_subgroup get_backend get_rank get_rank_size_full_group get_rank_size_group irecv isend
        isend_autograd_profiler isend_torch_profiler new_subgroups_with_group_param reduce_full_group_max reduce_full_group_min
        reduce_full_group_product reduce_full_group_sum reduce_group_max reduce_group_min reduce_group_product reduce_group_sum reduce_max
        reduce_min reduce_product reduce_sum reduce_sum_twice scatter scatter_checks scatter_complex scatter_full_group scatter_group
        send_recv send_recv_any_source send_recv_any_source_autograd_profiler send_recv_any_source_torch_profiler
        send_recv_autograd_profiler send_recv_torch_profiler send_recv_with_tag send_recv_with_tag_autograd_profiler
        send_recv_with_tag_torch_profiler static_graph_api_cpu broadcast_object_list
    """,
    "gloo": """
        accumulate_gradients_no_sync accumulate_gradients_no_sync_allreduce_hook accumulate_gradients_no_sync_allreduce_with_then_hook
        accumulate_gradients_no_sync_grad_is_view all_reduce_coalesced_full_group_max all_reduce_coalesced_full_group_min
        all_reduce_coalesced_full_group_product all_reduce_coalesced_full_group_sum all_reduce_coalesced_group_max
        all_reduce_coalesced_group_min all_reduce_coalesced_group_product all_reduce_coalesced_group_sum all_reduce_coalesced_max
        all_reduce_coalesced_min all_reduce_coalesced_product all_reduce_coalesced_sum batch_isend_irecv_gloo batch_isend_irecv_gloo_tags
        get_future grads_same_across_ranks_with_no_sync scatter_object_list
    """,
    "mpi": """
        all_to_all all_to_all_complex all_to_all_full_group all_to_all_group all_to_all_single_equal_split
        all_to_all_single_equal_split_complex all_to_all_single_equal_split_full_group all_to_all_single_equal_split_group
        all_to_all_single_unequal_split all_to_all_single_unequal_split_complex all_to_all_single_unequal_split_full_group
        all_to_all_single_unequal_split_group
    """,
}
CANT = {
    "barrier_timeout_(arg|full_group|global|group)": "the test wants Gloo's words; the ranks that our error names are in torch_distributed_test.py",
    "monitored_barrier_.*": "PyTorch has monitored_barrier() for Gloo only, and the test wants Gloo's words; barrier() names the missing ranks",
    "sparse_all_reduce_sum": "sparse tensors are refused, as docs/pytorch.md says",
}
# Why PyTorch itself skips each of the others, for one backend at least.
SKIPPED = re.compile("accelerator|cuda|gpu|nccl|github.com/pytorch/pytorch/(issues|pull)|torchvision", re.IGNORECASE)


@pytest.fixture(scope="module", params=["in place", "copied"])
def outcomes(tmp_path_factory, request):
    """What came of each test for each backend: [what torch_own_ranks.py has printed in all ranks]. "copied": as tensors
    of CUDA devices are."""
    folder = tmp_path_factory.mktemp("ranks")
    plan = folder / "plan"
    plan.write_text(json.dumps({backend: [f"test_{name}" for name in names.split()] for backend, names in MUST_PASS.items()}))
    clean = {name: value for name, value in os.environ.items() if not name.startswith("POLYVERSO_")}
    if request.param == "copied":
        clean["ELSEWHERE"] = "1"
    processes = [
        subprocess.Popen(
            [sys.executable, "-B", str(PROGRAM), str(rank), str(RANKS), str(folder), str(plan)], env={**clean, "OMP_NUM_THREADS": "1"},
            text=True, stdout=subprocess.PIPE, stderr=(folder / f"rank {rank}").open("w"),
        )
        for rank in range(RANKS)
    ]
    told = []
    try:
        for rank, process in enumerate(processes):
            said = process.communicate(timeout=500)[0]
            assert process.returncode == 0, (folder / f"rank {rank}").read_text()[-3000:]
            told += [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    return told


@pytest.mark.parametrize("backend", list(MUST_PASS))
def test_pytorch_s_own_tests_pass(backend, outcomes):
    ran = [one for one in outcomes if one["backend"] == backend and one["wanted"]]
    # Some versions of PyTorch have a bug of their own.
    wrong = [f"{one['test']}: {one['result']}: {one['why']}" for one in ran if one["result"] != "passed" and "github.com/pytorch" not in one["why"]]
    assert not wrong, "\n".join(wrong)
    # An earlier PyTorch lacks some.
    assert len(ran) > 0.8 * RANKS * len(MUST_PASS[backend].split())


def test_every_other_test_is_accounted_for(outcomes):
    known = {name for names in MUST_PASS.values() for name in names.split()}
    told = collections.defaultdict(list)
    for one in outcomes:
        if one["test"] not in known and not any(re.fullmatch(pattern, one["test"]) for pattern in CANT):
            told[one["test"]].append((one["result"], one["why"]))
    wrong = [
        f"{name}: {reasons}" for name, reasons in told.items()
        if any(result != "skipped" for result, _ in reasons) or not any(SKIPPED.search(why) for _, why in reasons)
    ]
    assert told and not wrong, "\n".join(wrong)
