# Random calls on random objects, closed and dropped in any order: every call succeeds or throws. tests/capi/random_handles.c does more of it.

use strict;
use warnings;

use Test::More;

use PDL::Lite;
use Polyverso;
use Polyverso::Group;
use Polyverso::KVStore;
use Polyverso::Tensor;

my $seed = $ENV{POLYVERSO_TEST_SEED} // 1;
srand $seed;
local $SIG{ALRM} = sub { require Carp; Carp::confess("seed $seed: a call hangs") };
alarm 200;
local $SIG{__WARN__} = sub { };    # an object of another kind, or none

my $node = Polyverso->init(timeout_ms => 200, gate_timeout_ms => 200, log_level => 'off');
my %places = map { $_ => [] } qw(table request tensor store group);
my $ones = PDL->ones(64);
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
        any(sub { put(store => Polyverso::KVStore->create(any(qw(local dist_async dist_sync)))) }, sub { $s->init($key, $ones) },
            sub { $s->push($key, $ones) }, sub { $s->pull($key, $ones->copy) }, sub { put(request => $s->pull($key, pick('tensor'), async => 1)) })->();
    },
    group => sub {
        my $g = pick('group');
        any(sub { put(group => Polyverso::Group->open($node)) }, sub { $g->allreduce($ones->copy) }, sub { $g->barrier },
            sub { $g->close if rand() < 0.3 }, sub { put(group => undef) })->();
    },
    node => sub {
        any(sub { put(request => $node->barrier(async => 1)) }, sub { $node->poll }, sub { $node->tables }, sub { pick('table')->handle })->();
    },
);
my @kinds = (('table') x 8, ('request') x 6, ('tensor') x 6, 'store', 'store', 'group', 'node');
my ($well, $threw) = (0, 0);
for (1 .. ($ENV{POLYVERSO_TEST_CALLS} // 20_000)) {
    if (eval { $calls{ any(@kinds) }->(); 1 }) { $well++ }
    elsif (ref $@ && $@->name eq 'MV_EINTERNAL') { fail("$@") }
    else { $threw++ }
}
cmp_ok($well, '>', 1000, "seed $seed: $well calls succeeded, $threw threw");
%places = ();
$node->shutdown;
pass('and the node ends');

done_testing;
