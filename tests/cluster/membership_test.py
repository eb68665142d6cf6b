"""A worker hears of what happens to the other members, in each language: by a callback in poll(), by asking, and by its descriptor."""

import signal

# Each says its events line by line, and ends when it is told to.
PYTHON = """
import select
node = pv.init()
table = node.array(100, name="t")
def show(event):
    say("event", event["kind"], event["rank"], event["role"], event.get("part", "-"), event["epoch"] > 1, event["dropped"])
    say("why", event["reason"])
node.on_membership(show)
say("up")
while True:
    select.select([sys.stdin, node.event_fd], [], [])
    node.poll()
    if select.select([sys.stdin], [], [], 0)[0] and wait_for_word() == "end":
        break
    table.add(np.ones(100, np.float32))
attempt(node.shutdown)
"""

PERL = """
use Polyverso;
use IO::Select;
$| = 1;
my $node = Polyverso->init;
my $table = $node->array(size => 100, name => 't');
$node->on_membership(sub {
    my ($event) = @_;
    print join(' ', 'event', @$event{qw(kind rank role)}, $event->{part} // '-', $event->{epoch} > 1 ? 'True' : 'False', $event->{dropped}), "\\n";
    print "why $event->{reason}\\n";
});
print "up\\n";
my $input = IO::Select->new(\\*STDIN);
$node->poll(timeout => 0.05) until $input->can_read(0);
<STDIN>;
$node->shutdown;
"""

LUA = """
local polyverso = require("polyverso")
io.stdout:setvbuf("line")
local node = polyverso.init()
local table_ = node:array{size = 100, name = "t"}
print("up")
local left = EVENTS
while left > 0 do
  local event = node:next_event(60)
  print("event", event.kind, event.rank, event.role, event.part or "-", event.epoch > 1 and "True" or "False", event.dropped)
  print("why", event.reason)
  left = left - 1
end
assert(node:next_event() == nil)
local heard = {}
node:on_membership(function(event) heard[#heard + 1] = event.kind end)
print("waits")
io.read()
node:shutdown()
"""

OTHER = """
node = pv.init()
table = node.array(100, name="t")
assert node.next_event() is None
say("up")
wait_for_word()
node.shutdown()
"""


def heard(node, *words, seconds=30):
    line = node.hear("event", seconds).split()
    assert line == ["event", *[str(word) for word in words], "True", "0"], (line, node.lines)
    return node.hear("why", seconds)


def test_members_come_and_go(cluster):
    job = cluster(4, 2, metrics=0)
    nodes = [job.python(0, PYTHON), job.start(1, ["perl", "-e", PERL]), job.start(2, ["lua5.4", "-e", LUA.replace("EVENTS", "5")])]
    victim, servers = job.python(3, OTHER), [job.server(number) for number in range(2)]
    for node in [*nodes, victim]:
        node.hear("up")
    servers[1].kill(signal.SIGTERM)
    servers[1].ends()
    for node in nodes:
        assert "hands its tables over" in heard(node, "draining", 5, "server", "-")
        assert "handed its tables over and left" in heard(node, "drained", 5, "server", "-")
        assert "serves the tables of server 1" in heard(node, "took_over", 4, "server", 5)
    victim.kill()
    for node in nodes:
        assert "worker 3" in heard(node, "lost", 3, "worker", "-")
    victim = job.python(3, OTHER)
    victim.hear("up")
    for node in nodes:
        heard(node, "joined", 3, "worker", "-")
    nodes[2].hear("waits")
    for node in [*nodes, victim]:
        node.tell("end")
    nodes[0].hear_attempt()
    for node in [*nodes, victim]:
        node.ends()
    servers[0].ends()


PLAIN = "node = pv.init()\nsay('up')\nwait_for_word()\nnode.shutdown()"

# A program that never asks has no descriptor that is always readable, and its polls wait.
IGNORANT = """
import select
node = pv.init()
say("up")
wait_for_word()
say("readable", bool(select.select([node.event_fd], [], [], 0.2)[0]))
begun = time.monotonic()
node.poll(timeout=0.3)
say("waited", time.monotonic() - begun >= 0.29)
say("first", node.next_event()["kind"])
say("second", node.next_event()["kind"])
say("timeout", node.next_event(0.2))
metrics = [line for line in node.metrics().splitlines() if line.startswith("polyverso_membership_changes_total")]
say("metrics", [line.split("kind=")[1] for line in metrics if not line.endswith(" 0")])
node.shutdown()
"""


def test_a_program_that_does_not_ask_is_not_disturbed(cluster):
    job = cluster(3, 1)
    nodes = [job.python(0, PLAIN), job.python(1, IGNORANT)]
    victim, server = job.python(2, PLAIN), job.server(0)
    for node in [*nodes, victim]:
        node.hear("up")
    victim.kill()
    victim = job.python(2, PLAIN)  # waits until the loss is known
    victim.hear("up")
    nodes[1].tell("go on")
    assert nodes[1].hear("readable") == "readable False"
    assert nodes[1].hear("waited") == "waited True"
    assert nodes[1].hear("first") == "first lost"
    assert nodes[1].hear("second") == "second joined"
    assert nodes[1].hear("timeout") == "timeout None"
    assert nodes[1].hear("metrics") == """metrics ['"joined"} 1', '"lost"} 1']"""
    for node in [nodes[0], victim]:
        node.tell("end")
    for node in [*nodes, victim]:
        node.ends()
    server.ends()
