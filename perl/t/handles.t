# The objects: their texts, comparison, copies, threads, and what is said of closed ones.

use strict;
use warnings;

use Config;
use Storable ();
use Test::More;
use FindBin;
use lib "$FindBin::Bin/lib";
use TestCluster ();

use Polyverso;
use Polyverso::DistLearn;
use Polyverso::Group;
use Polyverso::KVStore;

sub failure { my ($code) = @_; return eval { $code->(); 1 } ? 'nothing' : ref $@ ? $@->name . ': ' . $@->text : $@ }

my $node     = Polyverso->init(sync => 1, log_level => 'error');
my $table    = $node->matrix(rows => 3, cols => 2, name => 'weights');
my $array    = $node->array(size => 3, name => 'a', dtype => 'i64');
my $map      = $node->keyvalue(name => 'k', cols => 4);
my $group    = Polyverso::Group->open($node);
my $store    = Polyverso::KVStore->create('dist_sync', $node);
my $local    = Polyverso::KVStore->create('local');
my $strategy = Polyverso::DistLearn::AllReduceSGD->new($group);
my $request  = $table->add([1 .. 6], async => 1);
my $tensor   = Polyverso::Tensor->ones([2]);

subtest 'texts' => sub {
    is("$node",     'Polyverso::Node(worker 0 of 1, sync, 3 tables)',    'a node');
    is("$table",    'Polyverso::Table("weights", 3 x 2 f32)',            'a matrix');
    is("$array",    'Polyverso::Table("a", 3 i64)',                      'an array');
    is("$map",      'Polyverso::Table("k", keys x 4 f32)',               'a key-value table');
    like("$group",  qr/\APolyverso::Group\(rank 0 of 1, \w+\)\z/,        'a group');
    is("$store",    'Polyverso::KVStore("dist_sync", worker 0 of 1)',    'a store');
    is("$local",    'Polyverso::KVStore("local")',                       'a local store');
    is("$strategy", 'Polyverso::DistLearn::AllReduceSGD()',              'a strategy');
    $request->wait;
    is("$request", 'Polyverso::Request(done)', 'a request');
};

subtest 'a local store needs no node' => sub {
    my $own   = Polyverso->open_node(log_level => 'error');
    my $alone = Polyverso::KVStore->create('local', $own);
    $alone->init('w', [1, 2]);
    $own->shutdown;
    is("$alone", 'Polyverso::KVStore("local")', 'its text after a shutdown');
    $alone->push('w', [3, 4]);
    $alone->pull('w', my $out = Polyverso::Tensor->zeros([2]));
    is_deeply($out->to_list, [3, 4], 'it works');
    $alone->free;
};

subtest 'comparison' => sub {
    my $same  = $table;
    my $other = $node->open('weights');
    ok($table == $same && $table eq $same && !($table != $same) && !($table ne $same), 'an object is itself');
    ok($table != $other && $table ne $other && !($table == $other) && !($table eq $other), 'and no other one');
    ok($table eq 'Polyverso::Table("weights", 3 x 2 f32)', 'its text is a string');
    ok($table && $node && $store, 'all are true');
};

subtest 'copies' => sub {
    for my $object ($node, $table, $group, $store, $local, $strategy, $request, $tensor) {
        for my $how (qw(dclone freeze nfreeze)) {
            like(failure(sub { Storable->can($how)->($object) }), qr/MV_ENOSYS/, ref($object) . ": $how");
        }
    }
    like(failure(sub { Storable::dclone([{ table => $table }]) }), qr/\$node->open\("weights"\)/, 'and what to do instead is said');
};

SKIP: {
    skip 'this Perl has no threads', 1 unless $Config{useithreads};
    require threads;
    my @seen = threads->create({ context => 'list' }, sub {
        return map { ref $_ ? ref $_ : defined $_ ? 'a value' : 'undef' } map { ref $_ eq 'SCALAR' ? $$_ : $_ }
            $node, $table, $group, $store, $strategy, $request, $tensor;
    })->join;
    is("@seen", join(' ', ('undef') x 7), 'a thread gets no handles');
    is_deeply($table->get(as => 'array'), [[1, 2], [3, 4], [5, 6]], 'and takes none away');
    is($tensor->sum->item, 2, 'no memory either');
    $group->barrier;
    is($local->type, 'local', 'no store');

    # Whether Perl panicked used to depend on the order of a hash.
    for my $seed (1 .. 8) {
        local @ENV{qw(PERL_HASH_SEED PERL_PERTURB_KEYS)} = ($seed, 0);
        system $^X, '-Mthreads', '-MPolyverso', '-e',
            'my $n = Polyverso->init; sub run { my $t = $n->array(size => 1); threads->create(sub { ref $t })->join } run(); $n->shutdown';
        is($?, 0, "a process whose thread has seen objects ends well ($seed)");
    }
}

subtest 'closed' => sub {
    my $t = $node->array(size => 3, name => 'gone');
    $t->close for 1 .. 2;    # the second call does nothing
    like(failure(sub { $t->add([1, 2, 3]) }), qr/\AMV_EHANDLE: \$table->add: table "gone" is closed/, 'a table');
    is("$t", 'Polyverso::Table("gone", 3 f32, closed)', 'its text');
    my $d = $node->array(size => 3, name => 'destroyed');
    $d->destroy;
    like(failure(sub { $d->get }), qr/\$table->get: table "destroyed" is destroyed/, 'a destroyed one');
    my $g = Polyverso::Group->open($node);
    $g->close;
    $g->close;
    like(failure(sub { $g->barrier }), qr/MV_EHANDLE: \$group->barrier: the group is closed/, 'a group');
    like("$g", qr/, closed\)\z/, 'its text');
    my $s = Polyverso::KVStore->create('local');
    $s->free;
    like(failure(sub { $s->init('w', $tensor) }), qr/\$kv->init: the local store is closed/, 'a store');
    is("$s", 'Polyverso::KVStore("local", closed)', 'its text');
    my $x = Polyverso::Tensor->ones([2]);
    $x->free;
    is("$x", 'Polyverso::Tensor(freed)', 'a tensor');
};

subtest 'after shutdown' => sub {
    my $again = Polyverso->init;
    $again->shutdown;
    is($table->size, 3, 'the node lives as long as its last init');
    $node->shutdown;
    like(failure(sub { $table->get }), qr/\AMV_EHANDLE: \$table->get: table "weights" can't be used after shutdown/, 'a table');
    like(failure(sub { $group->barrier }), qr/the group can't be used after shutdown/, 'a group');
    like(failure(sub { $store->type }), qr/the dist_sync store can't be used after shutdown/, 'a store');
    like(failure(sub { $strategy->meter }), qr/the strategy can't be used after shutdown/, 'a strategy');
    like(failure(sub { $node->rank }), qr/MV_ESTATE: \$node->rank:.*call Polyverso->init\(\)/, 'the node');
    is("$table", 'Polyverso::Table("weights", 3 x 2 f32, after shutdown)', 'the text of the table');
    is("$node",  'Polyverso::Node(after shutdown)', 'the text of the node');
    is("$store", 'Polyverso::KVStore("dist_sync", after shutdown)', 'the text of the store');
    is($local->type, 'local', 'a local store has no node');
    my $next = Polyverso->init(log_level => 'error');
    like(failure(sub { $table->get }), qr/table "weights" can't be used after shutdown/, 'still after the next init');
    $next->shutdown;
};

subtest 'names in messages' => sub {
    my $n = Polyverso->init(log_level => 'error');
    like(failure(sub { $n->array(size => -1) }),         qr/: \$node->array: /,         'the method');
    like(failure(sub { $n->matrix(rows => -1) }),        qr/: \$node->matrix: /,        'which one');
    like(failure(sub { Polyverso->init(rank => 'x') }),  qr/: Polyverso->init: /,       'a class method');
    like(failure(sub { $n->array(size => 1)->set_updater('sdg') }), qr/: \$table->set_updater: /, 'of a table');
    like(failure(sub { Polyverso::mv_table_get(7, '') }), qr/: mv_table_get: /,         'C\'s names for C\'s functions');
    unlike(failure(sub { Polyverso::Group->open($n)->allreduce(\1) }), qr/mv_|SCALAR\(/, 'no names of C');
    $n->shutdown;
};

subtest 'init' => sub {
    for my $wrong (['sync'], [sync => 1, 'rank'], [rank => 7, nodes => 2], [no_such => 1], [log_level => 'loud']) {
        isnt(failure(sub { Polyverso->init(@$wrong) }), 'nothing', "init(@$wrong) fails");
        like(failure(sub { Polyverso::mv_rank(0) }), qr/MV_ESTATE/, 'and there is no node');
    }
    like(failure(sub { Polyverso->init('sync') }), qr/Polyverso->init: .*"sync" has no value/, 'a name without a value');
    my $one = Polyverso->init({ sync => 1, log_level => 'error' });
    ok($one->is_sync, 'settings as a hash');
    like(failure(sub { Polyverso->init(sync => 0) }), qr/MV_EDISAGREE/, 'an init that fails beside it');
    $one->shutdown;
    like(failure(sub { Polyverso::mv_rank(0) }), qr/MV_ESTATE/, 'does not count');
};

done_testing;
