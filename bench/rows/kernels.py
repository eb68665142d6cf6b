"""The kernels of core/math and core/shard, measured with Google Benchmark (bench/kernels.cpp)."""

import json
import subprocess

from harness.bench import measurement
from harness.compare import Spread
from harness.process import Broken, prefix
from harness.result import Row, ratio_at_least

REPETITIONS = 2


@measurement
def kernels(bench):
    """the kernels of core/math and core/shard compared with memcpy, in cache and in memory"""
    samples = run(bench)
    yield from optimizers(samples)
    yield from averages(samples)
    curves = {}
    for kernel, sizes in samples.items():
        curves[kernel] = [(size, Spread.of(speeds).median) for size, speeds in sizes.items()]
    bench.curves["kernels"] = ("kernels of core/math, payload counted once", curves)
    copies = samples.pop("memcpy")
    yield from codecs(samples, copies)
    for kernel, sizes in samples.items():
        for size in (min(sizes), max(sizes)):
            ratios = [own / copy for own, copy in zip(sizes[size], copies[size])]
            yield Row(
                name=f"kernel {kernel}, {size >> 10:,} KiB",
                ours=Spread.of(sizes[size]).map(giga),
                unit="GB/s",
                peer="memcpy",
                peer_value=Spread.of(copies[size]).map(giga),
                ratio=Spread.of(ratios),
                runs=len(ratios),
            )


def optimizers(samples):
    """Takes the optimizer steps out of the samples; compares each with additions that read and write the same
    arrays."""
    bounds = {name: samples.pop(name) for name in list(samples) if name.startswith("bound")}
    for kernel in [name for name in samples if name.startswith("optimizer ")]:
        name, bound = kernel.split("|")
        [(size, own)] = samples.pop(kernel).items()
        ratios = [one / other for one, other in zip(own, bounds[bound][size])]
        yield Row(
            name=f"{name}: a step of f32, {size >> 20} MiB",
            ours=Spread.of(own).map(giga),
            unit="GB/s",
            peer="additions to the same arrays",
            peer_value=Spread.of(bounds[bound][size]).map(giga),
            ratio=Spread.of(ratios),
            target=ratio_at_least(0.7),
            runs=len(ratios),
        )


def averages(samples):
    """Compares gossip's averages with an addition of the same arrays, which is the limit of the memory."""
    for dtype in ("f32", "f64"):
        size = max(samples[f"average_{dtype}"])
        own, bound = (samples[f"{kernel}_{dtype}"][size] for kernel in ("average", "add"))
        yield Row(
            name=f"gossip: average {size >> 20} MiB of {dtype}, with their disagreement",
            ours=Spread.of(own).map(giga),
            unit="GB/s",
            peer="an addition of the same arrays",
            peer_value=Spread.of(bound).map(giga),
            ratio=Spread.of([one / other for one, other in zip(own, bound)]),
            target=ratio_at_least(0.7),
            runs=len(own),
        )


def codecs(samples, copies):
    """Takes gradient compression out of the samples; compares each kernel with memcpy of the values."""
    for kernel in [name for name in samples if name.endswith((" encode", " decode", " decode and add"))]:
        [(size, own)] = samples.pop(kernel).items()
        ratios = [one / copy for one, copy in zip(own, copies[size])]
        yield Row(
            name=f"{kernel} of {size >> 20} MiB, one thread",
            ours=Spread.of(own).map(giga),
            unit="GB/s",
            peer="memcpy",
            peer_value=Spread.of(copies[size]).map(giga),
            ratio=Spread.of(ratios),
            target=ratio_at_least(0.5) if kernel in ("2bit encode", "2bit decode") else None,
            runs=len(ratios),
        )


def run(bench):
    """Returns {kernel: {bytes: [bytes per second]}}."""
    repetitions = 1 if bench.quick else REPETITIONS
    command = [
        *prefix(bench.parties.one_cpu.client),
        bench.parties.programs / "bench_kernels",
        "--benchmark_format=json",
        f"--benchmark_repetitions={repetitions}",
        "--benchmark_enable_random_interleaving=true",
        "--benchmark_min_time=0.02",
    ]
    bench.progress("Google Benchmark")
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode != 0:
        raise Broken(f"bench_kernels ended with status {done.returncode}:\n{done.stderr}")
    samples = {}
    for entry in json.loads(done.stdout)["benchmarks"]:
        if entry["run_type"] != "iteration":
            continue
        kernel, size = entry["run_name"].split("/")
        samples.setdefault(kernel, {}).setdefault(int(size), []).append(entry["bytes_per_second"])
    return {kernel: dict(sorted(sizes.items())) for kernel, sizes in sorted(samples.items())}  # it shuffles them


def giga(bytes_per_second):
    return bytes_per_second / 1e9
