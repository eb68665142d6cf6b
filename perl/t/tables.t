# Nodes, tables and requests, with PDLs and with arrays.

use strict;
use warnings;

use Test::More;
use FindBin;
use lib "$FindBin::Bin/lib";
use TestCluster ();

use Polyverso;

my $have_pdl = eval { require PDL::Lite; 1 };

my $node = Polyverso->init(sync => 1, log_level => 'error');
is_deeply([map { $node->$_ } qw(rank size worker_id num_workers server_id num_servers is_master is_sync)],
    [0, 1, 0, 1, 0, 1, 1, 1], 'a cluster of one');
$node->barrier(timeout => 5);

my $m = $node->matrix(rows => 3, cols => 2, name => 'm', init => [[1, 2], [3, 4], [5, 6]]);
is_deeply($m->get(as => 'array'), [[1, 2], [3, 4], [5, 6]], 'a matrix as rows');
$m->add([[1, 1], [1, 1], [1, 1]]);
$m->add([1, 1, 1, 1, 1, 1], forget => 1);
$m->add([[10, 10], [20, 20]], rows => [1, 1]);
is_deeply($m->get(as => 'array', rows => [1, 0]), [[35, 36], [3, 4]], 'some rows of it');
is_deeply($m->peek(as => 'array', rows => 2), [[7, 8]], 'one row of it');
$m->set([[0, 0]], rows => [2]);
is_deeply($node->open('m')->get(as => 'array'), [[3, 4], [35, 36], [0, 0]], 'opened by name');
is_deeply([@{ $node->tables->[0] }{qw(name kind dtype rows cols)}], ['m', 'matrix', 'f32', 3, 2], 'listed');
is_deeply([@{ $m->info }{qw(name rows cols bytes)}], ['m', 3, 2, 24], 'described');

my $a = $node->array(size => 3, dtype => 'f64', init => [0.1, 0.2, 0.3]);
$a->add([1, 1, 1], timeout => 5);
is_deeply($a->get(as => 'array'), [1.1, 1.2, 1.3], 'doubles keep their precision');
is_deeply($a->get(as => 'array', rows => [2]), [1.3], 'elements of an array');

for my $wrong (
    [ESHAPE     => sub { $m->add([1, 2]) }],
    [ESHAPE     => sub { $m->add(undef) }],
    [ERANGE     => sub { $m->get(rows => [3], as => 'array') }],
    [EINVAL     => sub { $m->get(rows => ['one'], as => 'array') }],
    [EINVAL     => sub { $m->get(rows => [0.5], as => 'array') }],
    [EINVAL     => sub { $m->get(as => 'list') }],
    [EINVAL     => sub { $m->add([1, 1], row => 1) }],
    [EINVAL     => sub { $node->array(length => 3) }],
    [EDTYPE     => sub { $node->array(size => 3, dtype => 'i16') }],
    [ENONFINITE => sub { $node->array(size => 1, reject_nonfinite => 1)->add([9**9**9]) }],
    [ENOTFOUND  => sub { $node->open('nobody') }],
) {
    ok(!eval { $wrong->[1]->(); 1 } && ref $@ && $@->name eq "MV_$wrong->[0]", "MV_$wrong->[0]") or diag $@;
}

my $add = $m->add([1 .. 6], async => 1);
$add->wait(timeout => 5);
my $get = $m->get(async => 1, as => 'array');
is_deeply($get->wait, [[4, 6], [38, 40], [5, 6]], 'an asynchronous get');
is_deeply($get->wait, [[4, 6], [38, 40], [5, 6]], 'gives its result as often as asked');
ok($get->done && !defined $get->handle, 'and is done');
my $barrier = $node->barrier(async => 1);
select undef, undef, undef, 0.001 until $barrier->done;
$barrier->wait;
my $cancelled = $m->get(async => 1, as => 'array');
$cancelled->cancel;
ok(!eval { $cancelled->wait; 1 } && $@->name eq 'MV_ECANCELED', 'a cancelled call has no result');

{
    my $other = Polyverso->open_node;
    ok(!$other->is_sync && $node->is_sync, 'a further node');
    $other->shutdown;
    ok(!eval { $other->rank; 1 } && $@->family eq 'handle', 'is gone after its shutdown');
}

SKIP: {
    skip 'PDL is not installed', 1 unless $have_pdl;
    subtest 'PDL' => sub {
        my $t = $node->matrix(rows => 4, cols => 3, init => PDL->sequence(3, 4));
        my $values = $t->get;
        is_deeply([$values->dims], [3, 4], 'columns run fastest');
        is($values->type, 'float', 'of the table\'s type');
        ok(PDL::all($values == PDL->sequence(3, 4)), 'a get returns a PDL');
        $t->add(PDL->ones(3, 4));
        $t->add(PDL->ones(PDL::float(), 3, 2), rows => PDL->new([3, 3]));
        ok(PDL::all($t->get(rows => [3]) == PDL->new([[12, 13, 14]])), 'other types are converted');
        ok(!eval { $t->get(rows => PDL->new([0.5])); 1 } && $@->name eq 'MV_EINVAL', 'but not cut');
        my $out = PDL->zeroes(PDL::float(), 3, 4);
        my $same = $t->get(out => $out);
        is($out->at(0, 0), 1, 'a get fills a PDL in place');
        is($same->get_dataref, $out->get_dataref, 'and returns it');
        is($t->get(async => 1)->wait->at(0, 1), 4, 'asynchronously');
        $values .= 0;
        is($t->get->at(0, 0), 1, 'each result is fresh');
    };
}

{
    my $t = $node->matrix(rows => 2, cols => 2, init => [[1, 2], [3, 4]], name => 'packed');
    my $out = "\0" x 16;
    is($t->get(out => \$out), \$out, 'a packed string receives the values');
    is_deeply([unpack 'f*', $out], [1 .. 4], 'in place');
    $t->get(out => \$out, rows => [1, 1], async => 1)->wait;
    is_deeply([unpack 'f*', $out], [3, 4, 3, 4], 'of some rows, asynchronously');
    for my $wrong ("\0" x 12, undef, '') {
        ok(!eval { $t->get(out => \(my $copy = $wrong)); 1 } && $@->name eq 'MV_ESHAPE', 'of the right length');
    }
    ok(!eval { $t->get(out => $out); 1 } && $@->text =~ /out must be .* a reference to a packed string/, 'no copy of one');
    $t->set_updater('sgd', rate => 0.5, timeout => 5);
    $t->add([[2, 2], [2, 2]]);
    is_deeply($t->get(as => 'array'), [[0, 1], [2, 3]], 'an updater with its parameters');
    for my $call (sub { $t->get('as') }, sub { $t->peek('as') }, sub { $t->add([1 .. 4], 'forget') }, sub { $t->set([1 .. 4], 'rows') },
        sub { $t->erase([1], 'forget') }, sub { $t->set_updater('sgd', 'rate') }, sub { $node->array('size') }) {
        ok(!eval { $call->(); 1 } && $@->text =~ /has no value/, 'half an option');
    }
}

for my $wrong (
    [qr/timeout is "soon", not a number of seconds/, sub { $m->get(timeout => 'soon') }],
    [qr/timeout is a reference/,                     sub { $node->barrier(timeout => []) }],
    [qr/\$node->barrier: .*"now" has no value/,      sub { $node->barrier('now') }],
    [qr/\$node->barrier: unknown option "timeuot"; known: async/,     sub { $node->barrier(timeuot => 1) }],
    [qr/unknown option "kep"; .*mean "keep"/,        sub { $node->save('/tmp', kep => 1) }],
    [qr/unknown option "keep"/,                      sub { $node->load('/tmp', keep => 1) }],
    [qr/unknown option "wait"/,                      sub { $node->poll(wait => 1) }],
) {
    like(eval { $wrong->[1]->(); 1 } ? 'nothing' : $@->text, $wrong->[0], 'a wrong option');
}

$m->destroy;
ok(!eval { $node->open('m'); 1 }, 'a destroyed table is gone');
$node->shutdown;
ok(!eval { $node->rank; 1 } && $@->name eq 'MV_ESTATE', 'nothing works after shutdown');

done_testing;
