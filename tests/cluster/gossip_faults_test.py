"""Gossiping processes, pulling and exchanging, that are killed and stopped at random. No node waits for them; restarted
nodes catch up."""

import json
import random
import signal
import subprocess
import time

import pytest

from gossip_swarm import SCHEDULING_MS, TIMEOUT_MS, Swarm

WATCHED = "w0"  # the node that gets no faults


@pytest.fixture(params=["pull", "symmetric"])
def swarm(request):
    swarm = Swarm(exchange=request.param)
    for value in range(4):
        swarm.start(f"w{value}", value)
    yield swarm
    swarm.end()


def test_nodes_are_killed_and_stopped_at_random(swarm):
    dice = random.Random(2026)
    restarted, stopped = set(), set()
    for _ in range(5):
        name = dice.choice([name for name in swarm.nodes if name != WATCHED])
        if dice.random() < 0.5:
            swarm.kill(name)
            swarm.steps_on(WATCHED, dice.randrange(5, 20))
            swarm.start(name, 100.0)
            restarted.add(name)
        else:
            process = swarm.nodes[name].process
            process.send_signal(signal.SIGSTOP)
            swarm.steps_on(WATCHED, dice.randrange(5, 20))
            process.send_signal(signal.SIGCONT)
            stopped.add(name)
    assert restarted and stopped
    # No step has waited longer than allowed. The limit is generous, because the machine may be busy.
    assert swarm.stands(WATCHED)[3] * 1000 < TIMEOUT_MS + SCHEDULING_MS
    # Restarted nodes are asked again, and converge to the others.
    before = swarm.stands_now(WATCHED)[4]
    for name in restarted:
        swarm.until(WATCHED, lambda report, name=name: report[4][name][0] > before[name][0] + 1)
    for name in swarm.nodes:
        averaged = swarm.stands_now(name)[2]
        swarm.until(name, lambda report, enough=averaged + 25: report[2] >= enough)
    values = [swarm.stands_now(name)[1] for name in swarm.nodes]
    assert max(values) - min(values) < 1, values


def test_status_is_shown_from_outside(swarm, tmp_path):
    swarm.until(WATCHED, lambda report: report[2] >= 10)
    words = ["polyverso", "status", "--master", f"127.0.0.1:{swarm.ports[WATCHED]}"]
    text = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    assert text.startswith(f"{WATCHED} at 127.0.0.1:{swarm.ports[WATCHED]}: clock ")
    for word in ("loss 1", "disagreement ", "served ", "score ", "w3"):
        assert word in text
    state = json.loads(subprocess.run([*words, "--json"], check=True, capture_output=True, text=True).stdout)
    assert state["name"] == WATCHED and state["averaged"] >= 10
    assert [peer["name"] for peer in state["peers"]] == ["w1", "w2", "w3"]
    assert all(10 <= peer["score"] <= 1000 for peer in state["peers"])
    if json.loads(swarm.settings)["exchange"] == "symmetric":
        assert state["exchanges"]["valid"] >= 10
    config = tmp_path / "nodes.yaml"
    config.write_text("nodes:\n" + "".join(f"- {{name: {name}, host: 127.0.0.1, port: {port}}}\n" for name, port in swarm.ports.items()))
    swarm.kill("w2")
    text = subprocess.run(["polyverso", "status", "--gossip", config], check=True, capture_output=True, text=True).stdout
    assert [line.split()[0] for line in text.splitlines() if " at 127.0.0.1:" in line] == ["w0", "w1", "w2", "w3"]
    assert f"w2 at 127.0.0.1:{swarm.ports['w2']}: no answer: " in text


def test_a_stopped_partner_costs_no_more_than_a_third_of_the_time_out():
    """Two nodes that exchange, one of them stopped: the other makes a step per third of the time-out at least."""
    swarm = Swarm(exchange="symmetric")
    try:
        for value in range(2):
            swarm.start(f"w{value}", value)
        swarm.until(WATCHED, lambda report: report[2] >= 10)
        swarm.nodes["w1"].process.send_signal(signal.SIGSTOP)
        begun = time.monotonic()
        report = swarm.steps_on(WATCHED, 10)
        assert report[3] * 1000 < TIMEOUT_MS + SCHEDULING_MS and time.monotonic() - begun < 10 * (TIMEOUT_MS + SCHEDULING_MS) / 1000
        swarm.nodes["w1"].process.send_signal(signal.SIGCONT)
        averaged = swarm.stands(WATCHED)[2]
        swarm.until(WATCHED, lambda report: report[2] >= averaged + 20)
    finally:
        swarm.end()
