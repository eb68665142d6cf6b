# Random calls on random objects, closed and dropped in any order: every call succeeds or throws.
# tests/capi/random_handles.c makes more such calls.

use strict;
use warnings;

use Test::More;

use PDL::Lite;
use Polyverso;
use Polyverso::DistLearn;
use Polyverso::Gossip;
use Polyverso::Group;
use Polyverso::KVStore;
use Polyverso::Tensor;

my $seed = $ENV{POLYVERSO_TEST_SEED} // 1;
srand $seed;
local $SIG{ALRM} = sub { require Carp; Carp::confess("seed $seed: a call hangs") };
alarm($ENV{POLYVERSO_TEST_SECONDS} // 200);
local $SIG{__WARN__} = sub { };    # warnings about undef and objects of a wrong class

my %settings = (timeout_ms => 200, gate_timeout_ms => 200, log_level => 'off');
my $config   = "nodes: [{name: a, host: 127.0.0.1, port: 0}]\ntimeout_ms: 20";
my $node     = Polyverso->init(%settings);
my $is_alone = $node->size == 1;
my %places   = map { $_ => [] } qw(node table request tensor store group strategy gossip);
my $ones     = PDL->ones(64);
my $values   = Polyverso::Tensor->view(PDL->ones(PDL::float(), 64));
my @names = 'a' .. 'f';

sub any { $_[int rand @_] }
sub pick { my ($kind) = @_; return $places{$kind}[rand 6] // any(map { @$_ } values %places) }
sub put { my ($kind, $made) = @_; $places{$kind}[rand 6] = $made; return }

my %calls = (
    table => sub {
        my $t = pick('table');
        my $rows = [int rand 10, int rand 10];
        any(sub { put(table => $node->array(size => 64, name => any(@names))) },
            sub { put(table => $node->matrix(rows => 8, cols => 8, name => any(@names))) },
            sub { put(table => $node->keyvalue(cols => 2, name => any(@names))) },
            sub { put(table => $node->open(any(@names))) },
            sub { $t->add($ones) }, sub { $t->get }, sub { $t->info },
            sub { put(request => $t->add($ones, async => 1)) }, sub { put(request => $t->get(async => 1)) },
            sub { put(request => $t->get(async => 1, rows => $rows, as => 'array')) }, sub { put(request => $t->set($ones, async => 1)) },
            sub { $t->close if rand() < 0.2 }, sub { $t->destroy if rand() < 0.2 })->();
    },
    request => sub {
        my $r = pick('request');
        any(sub { $r->done }, sub { $r->wait(timeout => 0.01) }, sub { $r->cancel }, sub { put(request => undef) })->();
    },
    tensor => sub {
        my $t = pick('tensor');
        any(sub { put(tensor => Polyverso::Tensor->zeros([8, 8])) }, sub { put(tensor => $t + 1) }, sub { put(tensor => $t->row(1)) },
            sub { put(tensor => $t->sum) }, sub { $t->pdl }, sub { put(tensor => Polyverso::Tensor->view($ones->copy)) }, sub { $t->free })->();
    },
    store => sub {
        my ($s, $key) = (pick('store'), int rand 4);
        any(sub { put(store => Polyverso::KVStore->create(any(qw(local dist_async dist_sync)))) }, sub { $s->init($key, $values) },
            sub { $s->push($key, $values) }, sub { $s->pull($key, $values->copy) },
            sub { put(request => $s->pull($key, pick('tensor'), async => 1)) })->();
    },
    group => sub {
        my $g = pick('group');
        any(sub { put(group => Polyverso::Group->open($node)) }, sub { $g->allreduce($ones->copy) }, sub { $g->barrier },
            sub { $g->close if rand() < 0.3 }, sub { put(group => undef) })->();
    },
    strategy => sub {
        my ($g, $s) = (pick('group'), pick('strategy'));
        any(sub { put(strategy => Polyverso::DistLearn::AllReduceSGD->new($g)) },
            sub { put(strategy => Polyverso::DistLearn::AllReduceEA->new($g, 2, 0.1)) },
            sub { put(strategy => Polyverso::DistLearn::AsyncEA->new(pick('table'), 1, 0.1)) },
            sub { $s->average_parameters([$ones->copy]) }, sub { $s->sum_gradients([$ones->copy]) }, sub { $s->meter }, sub { $s->close },
            sub { put(strategy => undef) })->();
    },
    gossip => sub {
        my $g = pick('gossip');
        any(sub { put(gossip => Polyverso::Gossip->open(\$config, 'a')) if rand() < 0.1 }, sub { $g->publish([$ones], 1) }, sub { $g->fetch_start },
            sub { $g->fetch_wait(1) }, sub { $g->average($ones->copy) }, sub { $g->state }, sub { $g->close if rand() < 0.1 },
            sub { put(gossip => undef) })->();
    },
    node => sub {
        my $n = pick('node');
        any(sub { put(request => $node->barrier(async => 1)) }, sub { $node->poll }, sub { $node->tables }, sub { pick('table')->handle },
            sub { put(node => Polyverso->open_node(%settings)) if $is_alone && rand() < 0.1 },
            sub { put(table => $n->array(size => 64, name => any(@names))) },
            sub { $n->shutdown if rand() < 0.1 })->();
    },
);
my @kinds = (('table') x 8, ('request') x 6, ('tensor') x 6, 'store', 'store', 'group', 'strategy', 'gossip', 'node');
my ($well, $threw, $count) = (0, 0, $ENV{POLYVERSO_TEST_CALLS} // 20_000);
for (1 .. $count) {
    if (eval { $calls{ any(@kinds) }->(); 1 }) { $well++ }
    elsif (ref $@ && $@->name eq 'MV_EINTERNAL') { fail("$@") }
    else { $threw++ }
}
cmp_ok($well, '>', $count / 20, "seed $seed: $well calls succeeded, $threw threw");
my @nodes = grep { ref && $_->isa('Polyverso::Node') } @{ $places{node} };
%places = ();
for my $each (@nodes) {
    eval { $each->shutdown };
}
eval { $node->shutdown };    # may throw the error of a dropped call
ok(!eval { $node->rank; 1 }, 'and the node ends');

done_testing;
