"""batch.h in Python: the protocol between a measuring program and the driver. See there for the lines."""

import json
import sys
import time

WARM_UP = 0.1  # part of the batch's seconds
FEWEST_SAMPLES = 3


def say(**what):
    print(json.dumps(what), flush=True)


def fail(text):
    say(error=str(text))
    sys.exit(1)


def serve(prepare):
    """Serves batches until standard input ends.

    prepare(operation, bytes) sets up the batch and returns two functions: repeat(times), and check(), which fails if
    the work of the batch was not done.
    """
    say(ready=True)
    for line in sys.stdin:
        operation, count, seconds, block = line.split()
        repeat, check = prepare(operation, int(count))
        samples = measure(repeat, float(seconds), int(block))
        check()
        samples.sort()
        say(
            median=samples[len(samples) // 2],
            mean=sum(samples) / len(samples),
            least=samples[0],
            p99=samples[(len(samples) - 1) * 99 // 100],
            count=len(samples) * int(block),
        )


def measure(repeat, seconds, block):
    """Returns seconds per repetition, one value for each `block` repetitions."""
    clock = time.perf_counter
    begun = clock()
    while True:
        repeat(block)
        if clock() >= begun + WARM_UP * seconds:
            break
    samples = []
    now = clock()
    end = now + seconds
    while now < end or len(samples) < FEWEST_SAMPLES:
        repeat(block)
        then, now = now, clock()
        samples.append((now - then) / block)
    return samples
