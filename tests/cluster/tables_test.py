"""Tables of every consistency and kind, between real processes in different languages."""

import sys

import pytest

# ---------------------------------------------------------------------------- stale-synchronous, one of three is slow

SLOW = """
node = pv.init()
table = node.array(3, name="w", staleness=2)
clock = 0
while wait_for_word() == "tick":
    table.add([100, 0, 0])
    table.clock()
    clock += 1
    say("ticked", clock)
node.barrier()
say("end", table.get().tolist())
node.shutdown()
"""

# Gets as long as its clock allows and reports it, then waits in a get until the slow worker has made a step. Gets up to
# clock 2 must not wait: these would wait forever.
FAST = """
node = pv.init()
me = node.worker_id
table = node.array(3, name="w", staleness=2)
one = np.eye(3)[me]
for clock in range(8):
    try:
        values = table.get(timeout=0.2 if clock > 2 else float("inf"))
    except pv.TimeoutError as error:
        say("held", clock, error.text)
        values = table.get()
    say("got", clock, *values[[0, me]].astype(int))
    assert values.min() >= 0 and table.info()["clock"] == clock
    table.add(one, wait=clock % 2 == 0)
    table.clock()
node.barrier()
say("end", table.get().tolist())
node.shutdown()
"""


@pytest.mark.parametrize("servers", [0, 2])
def test_the_fast_wait_for_the_slow_and_no_longer_than_they_must(cluster, servers):
    job = cluster(3, servers)
    slow, *fast = [job.python(rank, FAST if rank else SLOW) for rank in range(3)]
    for number in range(servers):
        job.server(number)
    for clock in range(8):
        if clock > 2:
            # A get at clock c needs all adds of clock c - 3. The slow worker has not made its adds yet.
            for node in fast:
                assert "0" in node.hear(f"held {clock} ")
            slow.tell("tick")
            slow.hear(f"ticked {clock - 2}")
        for node in fast:
            _, _, of_slow, own = node.hear(f"got {clock} ").split()
            assert int(own) == clock, "its own adds are always there"
            assert int(of_slow) == 100 * max(0, clock - 2), "just the adds that the slow one has made"
    slow.tell("done")
    assert {node.hear("end") for node in [slow, *fast]} == {"end [500.0, 8.0, 8.0]"}
    for node in job.nodes:
        node.ends()


def test_a_slow_one_that_leaves_is_waited_for_no_more(cluster):
    job = cluster(3)
    leaver = job.python(0, """
node = pv.init()
table = node.array(3, name="w", staleness=2)
wait_for_word()
say("leaving")
node.shutdown()
""")
    fast = [job.python(rank, FAST.replace("node.barrier()\n", "").replace('say("end"', 'say("last"')) for rank in (1, 2)]
    for node in fast:
        node.hear("held 3 ")
    leaver.tell("leave")
    leaver.hear("leaving")
    for node in fast:
        node.hear("got 7 ")
    for node in job.nodes:
        node.ends()


# ---------------------------------------------------------------------------- one table, three languages

ROUNDS = 6
KEYS = [-5, 0, 17, 2**62, -(2**63)]

WORKERS = {
    "python": [sys.executable, "-c", """
import polyverso as pv
node = pv.init()
me = node.worker_id
words = node.sparse(1000000, 2, name="words", dtype="i64", initial=7)
seen = node.keyvalue(name="seen", dtype="i64")
for turn in range(ROUNDS):
    words.add([[1, me], [1, me]], rows=[turn, 999999], wait=turn % 2 == 0)
    seen.add([me + 1] * len(KEYS), keys=KEYS, wait=False)
    seen.add([1], keys=[1000 * me + turn])
node.barrier()
def show(name, pairs): print(name, *sorted(f"{key}:{value}" for key, value in pairs), flush=True)
show("words", ((k, f"{v[0]},{v[1]}") for ids, values in words.scan(3) for k, v in zip(ids, values)))
show("seen", ((k, v) for ids, values in seen.scan(3) for k, v in zip(ids, values)))
node.barrier()
node.shutdown()
"""],
    "perl": ["perl", "-e", """
use strict; use warnings; use Polyverso; $| = 1;
my $node  = Polyverso->init;
my $me    = $node->worker_id;
my $words = $node->sparse(rows => 1000000, cols => 2, name => 'words', dtype => 'i64', initial => 7);
my $seen  = $node->keyvalue(name => 'seen', dtype => 'i64');
for my $turn (0 .. ROUNDS - 1) {
    $words->add([[1, $me], [1, $me]], rows => [$turn, 999999], forget => $turn % 2);
    $seen->add([($me + 1) x @{[KEYS]}], keys => [KEYS], forget => 1);
    $seen->add([1], keys => [1000 * $me + $turn]);
}
$node->barrier;
sub show { my ($name, @pairs) = @_; print join(' ', $name, sort @pairs), "\\n" }
my ($next, @pairs) = $words->scan(chunk => 3, as => 'array');
while (my ($ids, $values) = $next->()) { push @pairs, map { "$ids->[$_]:" . join ',', @{ $values->[$_] } } 0 .. $#$ids }
show(words => @pairs);
($next, @pairs) = $seen->scan(chunk => 3, as => 'array');
while (my ($ids, $values) = $next->()) { push @pairs, map { "$ids->[$_]:$values->[$_]" } 0 .. $#$ids }
show(seen => @pairs);
$node->barrier;
$node->shutdown;
"""],
    "lua": ["luajit", "-e", """
local polyverso = require("polyverso")
local node = polyverso.init()
local me = node:worker_id()
local words = node:sparse{rows = 1000000, cols = 2, name = "words", dtype = "i64", initial = 7}
local seen = node:keyvalue{name = "seen", dtype = "i64"}
local keys, counts = {KEYS}, {}
for i = 1, #keys do counts[i] = me + 1 end
for turn = 0, ROUNDS - 1 do
  words:add({{1, me}, {1, me}}, {rows = {turn, 999999}, wait = turn % 2 == 0})
  seen:add(counts, {keys = keys, wait = false})
  seen:add({1}, {keys = {1000 * me + turn}})
end
node:barrier()
local function show(name, t, text)
  local pairs = {}
  for ids, values in t:scan{chunk = 3} do
    for i, id in ipairs(ids) do pairs[#pairs + 1] = tostring(id):gsub("LL$", "") .. ":" .. text(values[i]) end
  end
  table.sort(pairs)
  print(name .. " " .. table.concat(pairs, " "))
end
show("words", words, function(row) return row[1] .. "," .. row[2] end)
show("seen", seen, tostring)
node:barrier()
node:shutdown()
"""],
}


def script(language):
    *command, text = WORKERS[language]
    keys = {
        "python": f"{KEYS}",
        "perl": ", ".join(f"'{key}'" for key in KEYS),
        "lua": ", ".join(f"{key}LL" if key != -(2**63) else "-9223372036854775807LL - 1" for key in KEYS),
    }[language]
    return [*command, text.replace("ROUNDS", str(ROUNDS)).replace("KEYS", keys)]


@pytest.mark.parametrize("servers", [2, 0])
def test_three_languages_share_sparse_and_keyvalue_tables(cluster, servers):
    job = cluster(3, servers)
    workers = [job.start(rank, script(language)) for rank, language in enumerate(WORKERS)]
    for number in range(servers):
        job.server(number)
    adds = 3 * ROUNDS
    words = {turn: (7 + 3, 7 + 0 + 1 + 2) for turn in range(ROUNDS)}
    words[999999] = (7 + adds, 7 + ROUNDS * (0 + 1 + 2))
    seen = {key: ROUNDS * (1 + 2 + 3) for key in KEYS}
    for worker in range(3):
        for turn in range(ROUNDS):
            seen[1000 * worker + turn] = seen.get(1000 * worker + turn, 0) + 1
    expected_words = " ".join(["words", *sorted(f"{key}:{a},{b}" for key, (a, b) in words.items())])
    expected_seen = " ".join(["seen", *sorted(f"{key}:{value}" for key, value in seen.items())])
    for node, language in zip(workers, WORKERS):
        assert node.hear("words ") == expected_words, language
        assert node.hear("seen ") == expected_seen, language
    for node in job.nodes:
        node.ends()


# ---------------------------------------------------------------------------- large asynchronous adds begin while they are copied

LARGE = """
node = pv.init()
table = node.array(5_000_003, name="large", merge=MERGE)
values = np.empty(5_000_003, np.float32)
for number in range(1, 9):
    values[:] = number
    request = table.add_async(values)
    values[:] = -1e6  # it is this program's again
    if number % 2 == 0:
        request.wait()
node.barrier()
seen = table.get()
say("seen", seen.min(), seen.max())
node.shutdown()
"""


@pytest.mark.parametrize("transport", ["auto", "tcp"])
@pytest.mark.parametrize("merge", [False, True])
@pytest.mark.parametrize("servers", [1, 3])
def test_large_adds_are_taken_from_the_caller_when_they_return(cluster, servers, merge, transport):
    job = cluster(2, servers, transport=transport)
    nodes = [job.python(number, LARGE.replace("MERGE", str(merge))) for number in range(2)]
    others = [job.server(number) for number in range(servers)]
    for node in nodes:
        assert node.hear("seen ", 60).split()[1:] == ["72.0", "72.0"]
    for node in (*nodes, *others):
        node.ends()


def test_more_tables_than_descriptors(run):
    """The processes of a machine map each other's tables. A table takes one descriptor of its server, and half of them
    stay for the program; the tables beyond are read by messages."""
    text = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (128, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
import numpy as np
import polyverso as pv

with pv.init() as node:
    tables = [node.array(8) for _ in range(150)]
    for number, table in enumerate(tables):
        table.add(np.full(8, number + 1))
    node.barrier()
    for number, table in enumerate(tables):
        assert (table.get() == 4 * (number + 1)).all(), number
    files = [open("/dev/null") for _ in range(20)]
    print("read them all")
"""
    status, out, err = run("-n", "4", "--", sys.executable, "-c", text)
    assert status == 0, err
    assert out.count("read them all") == 4
    assert err.count("half of its limit (ulimit -n)") == 4  # one warning a process


def test_more_groups_than_descriptors(run):
    text = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (96, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
import numpy as np
import polyverso as pv

with pv.init() as node:
    groups = [pv.Group(node) for _ in range(120)]
    for group in groups:
        value = np.ones(3)
        group.allreduce(value)
        assert (value == 2).all()
    files = [open("/dev/null") for _ in range(20)]
    print(groups[0].info["transport"], groups[-1].info["transport"])
"""
    status, out, err = run("-n", "2", "--", sys.executable, "-c", text)
    assert status == 0, err
    assert out.count("shm messages") == 2
