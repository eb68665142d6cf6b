#!/usr/bin/env python3
"""Fused optimizers beside PyTorch's own, on one device in one run.

    beside_torch.py ROWS [MIB]     ROWS: what bench_device has printed, with arrays of MIB = 256 MiB
"""

import re
import statistics
import sys

import torch

GOAL = 1.0  # of PyTorch's time
OURS = {"mx.adam": lambda tensors: torch.optim.Adam(tensors, lr=1e-3, fused=True),
        "mx.adamw": lambda tensors: torch.optim.AdamW(tensors, lr=1e-3, fused=True),
        "mx.adagrad": lambda tensors: torch.optim.Adagrad(tensors, lr=1e-3, fused=True),
        "mx.sgd": lambda tensors: torch.optim.SGD(tensors, lr=1e-3, fused=True),
        "mx.sgd momentum=0.9": lambda tensors: torch.optim.SGD(tensors, lr=1e-3, momentum=0.9, fused=True)}


def millis(make, tensors, bytes_each):
    """The best of five rounds of ten steps, as bench_device measures."""
    parameters = [torch.rand(bytes_each // 4, device="cuda", requires_grad=True) for _ in range(tensors)]
    for parameter in parameters:
        parameter.grad = torch.rand_like(parameter)
    optimizer = make(parameters)
    for _ in range(3):
        optimizer.step()
    best = float("inf")
    for _ in range(5):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(10):
            optimizer.step()
        end.record()
        end.synchronize()
        best = min(best, begin.elapsed_time(end) / 10)
    return best


def main():
    rows = dict(re.findall(r"^\| (.*?) \| ([0-9.]+) \|", open(sys.argv[1]).read(), re.M))
    size = (int(sys.argv[2]) if len(sys.argv) > 2 else 256) << 20
    missed, ratios = [], []
    print(f"\nBeside PyTorch {torch.__version__}, fused=True:\n\n| optimizer | ms | PyTorch's ms | ours / PyTorch's | goal |\n|---|---|---|---|---|")
    for name, make in OURS.items():
        for tensors in (1, 1000):
            row = f"{name}, {tensors} tensor" + "s" * (tensors > 1)
            try:
                theirs = millis(make, tensors, size if tensors == 1 else min(256 << 10, size // tensors // 4 * 4))
            except (RuntimeError, TypeError) as error:
                print(f"| {row} | {rows[row]} | not in this PyTorch: {str(error).splitlines()[0]} | | |")
                continue
            ratios.append(float(rows[row]) / theirs)
            if ratios[-1] > GOAL:
                missed.append(row)
            print(f"| {row} | {rows[row]} | {theirs:.3f} | {ratios[-1]:.2f} | {GOAL:.2f}{' missed' * (ratios[-1] > GOAL)} |")
    print(f"\nmedian of the ratios: {statistics.median(ratios):.2f}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
