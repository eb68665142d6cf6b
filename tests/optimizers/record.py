#!/usr/bin/env python3
"""Records what MXNet 1.9.1 makes of 50 random updates, optimizer by optimizer, for replay_test.cpp.

    record.py [--torch]

It runs in the environment that bench/harness/mxnet.py makes (mxnet==1.9.1, numpy<1.24), and rewrites recorded/*.json; with --torch,
which wants PyTorch 1.13 instead (Debian: python3-torch), only adamw.json. Where the wheel raises or gives NaN, and for Lion, the
record is the paper's formula in 64 bits, written down here.

A case names the updater as mv_table_set_updater() takes it and the seed of its numbers. Number k of a seed is
((splitmix64(seed * 2^32 + k) >> 40) - 2^23) / 2^22, between -2 and 2: the tensors' initial values come first, then every update's
gradients, key by key. A row-sparse update takes row r of a tensor where bit 40 + r of splitmix64(seed * 2^32 + 2^31 + update) is set.
"""

import argparse
import json
import math
from pathlib import Path

import numpy as np

ROWS, COLS, UPDATES = 5, 7, 50
KEPT = (1, 2, 3, 10, 25, 50)
HERE = Path(__file__).parent


def splitmix64(state):
    mask = (1 << 64) - 1
    z = (state + 0x9E3779B97F4A7C15) & mask
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    return z ^ (z >> 31)


class Draws:
    def __init__(self, seed):
        self.seed, self.next = seed, 0

    def tensor(self):
        numbers = [(splitmix64((self.seed << 32) + self.next + i) >> 40) - 2**23 for i in range(ROWS * COLS)]
        self.next += ROWS * COLS
        return (np.array(numbers) / 2**22).reshape(ROWS, COLS)

    def rows(self, update):
        bits = splitmix64((self.seed << 32) + 2**31 + update) >> 40
        return [row for row in range(ROWS) if bits >> row & 1]


# ------------------------------------------------------------ the cases

# (our parameters, MXNet's arguments where they differ from ours)
COMMON = "rescale_grad=0.25 wd=0.01 clip_gradient=0.3"
PLAIN = ["", "learning_rate=0.05", COMMON]
SCHEDULES = [
    "lr_scheduler=factor step=7 factor=0.5 learning_rate=0.3",
    "lr_scheduler=factor step=3 factor=0.1 stop_factor_lr=0.001 learning_rate=0.3 warmup_steps=10 warmup_begin_lr=0.01",
    "lr_scheduler=multifactor step=5:12:30 factor=0.3 learning_rate=0.2",
    "lr_scheduler=multifactor step=5:12:30 factor=0.3 learning_rate=0.2 warmup_steps=8 warmup_begin_lr=0.05 warmup_mode=constant",
    "lr_scheduler=poly max_update=40 pwr=2 learning_rate=0.3 final_lr=0.01",
    "lr_scheduler=cosine max_update=40 learning_rate=0.3 final_lr=0.01 warmup_steps=10 warmup_begin_lr=0.02",
    "begin_num_update=5 lr_scheduler=factor step=7 factor=0.5 learning_rate=0.3",
]
WHEEL = {
    "sgd": PLAIN + ["momentum=0.9", f"momentum=0.5 {COMMON}"] + SCHEDULES,
    "signum": PLAIN + ["momentum=0 wd=0.1", f"wd_lh=0.1 {COMMON}"],
    "ftml": PLAIN + [f"beta1=0.5 beta2=0.99 epsilon=1e-6 {COMMON}"],
    "lbsgd": ["", f"momentum=0.9 warmup_strategy=lars {COMMON}", f"momentum=0.5 batch_scale=4 updates_per_epoch=2 {COMMON}",
              "batch_scale=3 warmup_strategy=power2 updates_per_epoch=4", "batch_scale=2 warmup_strategy=sqrt updates_per_epoch=8",
              "batch_scale=2 warmup_strategy=lars momentum=0.9 begin_epoch=1 updates_per_epoch=1",
              "lr_scheduler=factor step=7 factor=0.5 learning_rate=0.3"],
    "dcasgd": PLAIN + ["lamda=0.5 learning_rate=0.1"],
    "nag": PLAIN + ["momentum=0.9", f"momentum=0.5 {COMMON}"],
    "adam": PLAIN + [f"beta1=0.8 beta2=0.99 epsilon=1e-4 {COMMON}", "begin_num_update=3"],
    "adagrad": PLAIN + [f"eps=0.01 {COMMON}"],
    "rmsprop": PLAIN + [f"gamma1=0.8 epsilon=1e-4 {COMMON}", "clip_weights=0.5 learning_rate=0.1", "centered=1",
                        f"centered=1 gamma2=0.5 clip_weights=1.5 {COMMON}"],
    "adadelta": ["", f"rho=0.8 epsilon=1e-3 {COMMON}"],
    "test": ["", "rescale_grad=0.25"],
    "ftrl": PLAIN + [f"lamda1=0.5 beta=0.5 learning_rate=0.3 {COMMON}"],
    "adamax": PLAIN + [f"beta1=0.8 beta2=0.99 {COMMON}"],
    "nadam": PLAIN + [f"beta1=0.8 beta2=0.99 schedule_decay=0.1 {COMMON}"],
    "lamb": PLAIN + [f"lower_bound=0.5 upper_bound=2 {COMMON}", "bias_correction=0"],
}
# Names of a case, besides its parameters: what makes it special.
KEYS = {"nadam": ["", COMMON], "adam": [COMMON], "sgd": SCHEDULES[:1]}
SPARSE = {"sgd": ["wd=0.01", f"momentum=0.9 {COMMON}"], "adam": ["", COMMON], "adagrad": ["rescale_grad=0.25 clip_gradient=0.3"],
          "ftrl": [f"learning_rate=0.3 {COMMON}"]}
HALVES = {"sgd": ["", f"momentum=0.9 {COMMON}"], "nag": [f"momentum=0.9 {COMMON}"], "adam": [COMMON], "lamb": [COMMON]}

CLASSES = {"lbsgd": "LBSGD", "dcasgd": "DCASGD", "nag": "NAG", "adagrad": "AdaGrad", "adadelta": "AdaDelta", "rmsprop": "RMSProp"}


def cases(name):
    """{updater, seed, keys, rows, dtype, mults} for all cases of an optimizer."""
    number = 0
    for kind, texts in (("", WHEEL.get(name, [])), ("keys", KEYS.get(name, [])), ("rows", SPARSE.get(name, [])),
                        ("halves", HALVES.get(name, []))):
        for text in texts:
            number += 1
            yield {
                "updater": f"mx.{name} {text}".strip(),
                "seed": 1000 * (sorted([*WHEEL, "adamw", "lion"]).index(name) + 1) + number,
                "keys": 2 if kind == "keys" else 1,
                "rows": kind == "rows",
                "dtype": "f16" if kind == "halves" else "f32",
            }


def mults(key):
    """lr_mult and wd_mult of a key."""
    return (1, 1) if key == 0 else (0.5, 3)


def arguments(text):
    pairs = dict(word.split("=") for word in text.split()[1:])
    return {key: value if key.endswith(("strategy", "mode", "scheduler")) or key == "step" else number(value)
            for key, value in pairs.items()}


def number(text):
    return int(text) if text.lstrip("-").isdigit() else float(text)


# ------------------------------------------------------------ MXNet


def make_optimizer(mx, text):
    name = text.split()[0].removeprefix("mx.")
    given = arguments(text)
    for flag in ("centered", "bias_correction"):
        if flag in given:
            given[flag] = bool(given[flag])
    kind = given.pop("lr_scheduler", None)
    if kind:
        own = {key: given.pop(key) for key in ("factor", "stop_factor_lr", "max_update", "pwr", "final_lr", "warmup_steps",
                                               "warmup_begin_lr", "warmup_mode") if key in given}
        if "step" in given:
            steps = [int(step) for step in given.pop("step").split(":")]
            own["step"] = steps if kind == "multifactor" else steps[0]
        schedulers = {"factor": "FactorScheduler", "multifactor": "MultiFactorScheduler", "poly": "PolyScheduler", "cosine": "CosineScheduler"}
        given["lr_scheduler"] = getattr(mx.lr_scheduler, schedulers[kind])(base_lr=given.get("learning_rate", 0.01), **own)
    return mx.optimizer.create(name, **given)


def run_wheel(mx, case):
    draws = Draws(case["seed"])
    dtype = {"f32": "float32", "f16": "float16"}[case["dtype"]]
    text = case["updater"] + (" multi_precision=1" if case["dtype"] == "f16" else "")
    optimizer = make_optimizer(mx, text)
    optimizer.set_lr_mult({key: mults(key)[0] for key in range(case["keys"])})
    optimizer.set_wd_mult({key: mults(key)[1] for key in range(case["keys"])})
    updater = mx.optimizer.get_updater(optimizer)
    weights = [mx.nd.array(draws.tensor(), dtype=dtype) for _ in range(case["keys"])]
    if case["rows"]:
        weights = [weight.tostype("row_sparse") for weight in weights]
    kept = {}
    for update in range(1, UPDATES + 1):
        for key, weight in enumerate(weights):
            gradient = mx.nd.array(draws.tensor(), dtype=dtype)
            if case["rows"]:
                rows = draws.rows(update)
                gradient = mx.nd.sparse.row_sparse_array((gradient.asnumpy()[rows], rows), shape=(ROWS, COLS), dtype=dtype)
                if not rows:
                    gradient = mx.nd.sparse.zeros("row_sparse", (ROWS, COLS), dtype=dtype)
            updater(key, gradient, weight)
        if update in KEPT:
            kept[update] = [weight.asnumpy() for weight in weights]
    return kept


# ------------------------------------------------------------ formulas, in 64 bits


def run_formula(case, make):
    draws = Draws(case["seed"])
    weight = draws.tensor()
    step = make(arguments(case["updater"]), weight)
    kept = {}
    for update in range(1, UPDATES + 1):
        gradient = draws.tensor()
        rows = draws.rows(update) if case["rows"] else list(range(ROWS))
        if case.get("first_zeros", 0) >= update:
            gradient *= 0
        step(gradient, rows)
        if update in KEPT:
            kept[update] = [weight.copy()]
    return kept


def prepared(gradient, given):
    scaled = gradient * given.get("rescale_grad", 1)
    most = given.get("clip_gradient", math.inf)
    return np.clip(scaled, -most, most)


def dcasgd_with_momentum(given, w):  # Zheng et al., with momentum as MXNet's class means it
    speed, previous = np.zeros_like(w), w.copy()

    def step(gradient, _):
        g = prepared(gradient, given)
        speed[:] = given["momentum"] * speed - given["learning_rate"] * (
            g + given.get("wd", 0) * w + given.get("lamda", 0.04) * g * g * (w - previous))
        previous[:] = w
        w[:] += speed

    return step


def sparse_adagrad_with_wd(given, w):  # the dense formula, on the rows that have a gradient
    history = np.zeros_like(w)

    def step(gradient, rows):
        g = prepared(gradient, given)[rows]
        history[rows] += g * g
        w[rows] -= given["learning_rate"] * (g / np.sqrt(history[rows] + given.get("eps", 1e-7)) + given["wd"] * w[rows])

    return step


def adamax_after_zeros(given, w):  # Kingma and Ba, section 7; 0 / 0 is no step
    m, u = np.zeros_like(w), np.zeros_like(w)
    count = 0

    def step(gradient, _):
        nonlocal count
        count += 1
        m[:] = 0.9 * m + 0.1 * gradient
        u[:] = np.maximum(0.999 * u, abs(gradient))
        w[:] -= given["learning_rate"] / (1 - 0.9**count) * np.divide(m, u, out=np.zeros_like(w), where=u > 0)

    return step


def lion(given, w):  # Chen et al., algorithm 2
    m = np.zeros_like(w)
    beta1, beta2 = given.get("beta1", 0.9), given.get("beta2", 0.99)

    def step(gradient, _):
        g = prepared(gradient, given)
        w[:] -= given["learning_rate"] * (np.sign(beta1 * m + (1 - beta1) * g) + given.get("wd", 0) * w)
        m[:] = beta2 * m + (1 - beta2) * g

    return step


FORMULAS = {
    "dcasgd": [(dcasgd_with_momentum, {"updater": f"mx.dcasgd momentum=0.9 lamda=0.5 learning_rate=0.05 {COMMON}"})],
    "adagrad": [(sparse_adagrad_with_wd, {"updater": f"mx.adagrad learning_rate=0.1 {COMMON}", "rows": True})],
    "adamax": [(adamax_after_zeros, {"updater": "mx.adamax learning_rate=0.02", "first_zeros": 4})],
    "lion": [(lion, {"updater": "mx.lion learning_rate=0.01"}), (lion, {"updater": f"mx.lion learning_rate=0.01 beta1=0.8 beta2=0.9 {COMMON}"})],
}


def formula_cases(name):
    for number, (make, special) in enumerate(FORMULAS.get(name, [])):
        case = {"seed": 900000 + 100 * sorted(FORMULAS).index(name) + number, "keys": 1, "rows": False, "dtype": "f64", **special}
        yield case, run_formula(case, make)


# ------------------------------------------------------------ PyTorch


def run_torch(torch, case):
    draws = Draws(case["seed"])
    given = arguments(case["updater"])
    weight = torch.tensor(draws.tensor(), dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.AdamW([weight], lr=given.get("learning_rate", 0.001), betas=(given.get("beta1", 0.9), given.get("beta2", 0.999)),
                                  eps=given.get("epsilon", 1e-8), weight_decay=given.get("wd", 0))
    kept = {}
    for update in range(1, UPDATES + 1):
        weight.grad = torch.tensor(draws.tensor(), dtype=torch.float64)
        optimizer.step()
        if update in KEPT:
            kept[update] = [weight.detach().numpy().copy()]
    return kept


def torch_cases():
    for number, text in enumerate(["", "learning_rate=0.05 wd=0.1", "beta1=0.8 beta2=0.99 epsilon=1e-4 wd=0.01"]):
        yield {"updater": f"mx.adamw {text}".strip(), "seed": 800000 + number, "keys": 1, "rows": False, "dtype": "f64"}


# ------------------------------------------------------------ files


def write(name, source, records):
    """records: (case, {update: [weights of each key]})"""
    lines = []
    for case, kept in records:
        assert all(np.isfinite(weight).all() for weights in kept.values() for weight in weights), case
        after = {update: [[plain(value) for value in weight.ravel()] for weight in weights] for update, weights in kept.items()}
        lines.append("  " + json.dumps({**case, "after": after}, separators=(",", ":")))
    text = '{"source": %s, "rows": %d, "cols": %d, "updates": %d, "cases": [\n%s\n]}\n' % (
        json.dumps(source), ROWS, COLS, UPDATES, ",\n".join(lines))
    (HERE / "recorded" / f"{name}.json").write_text(text, encoding="utf-8")


def plain(value):
    """The shortest text that its own type reads back."""
    return float(np.format_float_scientific(value, unique=True, trim="-"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch", action="store_true")
    if parser.parse_args().torch:
        import torch

        write("adamw", f"PyTorch {torch.__version__}", [(case, run_torch(torch, case)) for case in torch_cases()])
        return
    import mxnet as mx

    for name in sorted({*WHEEL, *FORMULAS}):
        source = f"MXNet {mx.__version__}; dtype f64: the formula in record.py"
        write(name, source, [(case, run_wheel(mx, case)) for case in cases(name)] + list(formula_cases(name)))


if __name__ == "__main__":
    main()
