# Polyverso::KVStore: keys, values, updaters and commands. AI::MXNet's interface to it has its own tests.

use strict;
use warnings;

use Test::More;

use FindBin;
use lib "$FindBin::Bin/lib";
use PDL::Lite;
use TestCluster;
use Polyverso;
use Polyverso::KVStore;

my $class = 'Polyverso::Tensor';
my $shape = [2, 3];

sub ones    { return $class->ones($shape) }
sub holds   { my ($tensor, $value, $name) = @_; ok($tensor->equal($class->full($tensor->shape, $value)), $name) or diag "$tensor" }
sub failure { my ($code) = @_; return eval { $code->(); 1 } ? 'nothing' : ref $@ ? $@->name . ': ' . $@->text : $@ }

my $kv = Polyverso::KVStore->create('Local');
is($kv->type, 'local', 'type');
is($kv->rank . $kv->num_workers, '01', 'rank and workers');
like(failure(sub { Polyverso::KVStore->create('dist_sink') }), qr/MV_EINVAL.*dist_sync/, 'an unknown type lists the known ones');

my ($a, $b) = map { $class->zeros($shape) } 1 .. 2;
$kv->init(3, ones() * 2);
$kv->pull('3', $a);
holds($a, 2, "3 is '3'");
$kv->push(3, [map { ones() } 1 .. 4]);
$kv->pull(3, [$a, $b]);
holds($_, 4, 'the sum of four devices') for $a, $b;
$kv->broadcast(['w', 'b'], [ones(), ones() * 5], [$a, $b]);
holds($b, 5, 'broadcast');
$kv->pushpull(['w', 'b'], [[ones(), ones()], [ones()]], [$a, $b]);
holds($a, 2, 'several keys, each with its devices');

my $pdl = PDL->zeroes(PDL::float(), 3, 2);
$kv->pull('w', $class->view($pdl));
is($pdl->sum, 12, "a PDL's memory");
my $request = $kv->pull('b', $a, async => 1);
$request->wait(timeout => 5);
holds($a, 1, 'a pull meanwhile');

like(failure(sub { $kv->push('nobody', ones()) }), qr/MV_ENOTFOUND: \$kv->push: .*call \$kv->init\(\)/, 'an unknown key');
like(failure(sub { $kv->push(['w', 'w'], [ones(), ones()]) }), qr/twice/, 'a key twice');
like(failure(sub { $kv->push('w', $class->ones([3])) }), qr/MV_ESHAPE.*\(2, 3\)/, 'a wrong shape');
like(failure(sub { $kv->push('w', $class->ones($shape, 'f64')) }), qr/MV_EDTYPE/, 'a wrong dtype');
like(failure(sub { $kv->push('w', ones(), timeuot => 3) }), qr/timeuot/, 'an unknown option');
like(failure(sub { $kv->set_optimizer('mx.adam learning_rat=3') }), qr/learning_rate/, 'an unknown parameter');
$kv->pull('w', $a, timeout => 5);
holds($a, 2, 'and the store goes on');

# Updaters
my @said;
$kv->set_updater(sub {
    my ($key, $merged, $stored) = @_;
    push @said, "update on key: $key";
    die "not this one\n" if $key eq 'b';
    $stored += $merged * 2;
});
$kv->push(3, ones());
is_deeply(\@said, ['update on key: 3'], 'the updater sees the key');
$kv->pull(3, $a);
holds($a, 6, 'and changes what is stored');
is(failure(sub { $kv->push(['w', 'b', 3], [map { ones() } 1 .. 3]) }), "not this one\n", 'what it dies of is the error of the push');
$kv->pull(['w', 'b', 3], [my @out = map { $class->zeros($shape) } 1 .. 3]);
holds($out[0], 4, 'a key before');
holds($out[1], 1, 'the key stays as it was');
holds($out[2], 8, 'a key behind');

# Perl lets a function be left by `next` and `last`, which warns.
{
    no warnings 'exiting';
    for my $leave (sub { next }, sub { last }, sub { last OUT }) {
        $kv->set_updater(sub { my ($key, $merged, $stored) = @_; $stored += $merged; $leave->() });
        my $fault;
      OUT: { $fault = failure(sub { $kv->push(3, ones()) }) }
        like($fault, qr/MV_EINVAL: key "3": the updater was left by next or last/, 'left by a loop') if defined $fault;
        $kv->set_updater(undef);
        $kv->pull(3, $a);
        holds($a, 8, 'the key stays as it was, and the store goes on');
    }
    $kv->set_updater(sub { my ($key, $merged, $stored) = @_; $stored += $merged * 2 });
}
for my $wrong (3, 'code', [], {}, 0) {
    like(failure(sub { $kv->set_updater($wrong) }), qr/MV_EINVAL: \$kv->set_updater: a code reference is needed/, 'what is no function is refused');
}
$kv->push(3, ones());
$kv->pull(3, $a);
holds($a, 10, 'and the updater stays');

# A store that could not be closed inside its updater can be later.
{
    my $other = Polyverso::KVStore->create('local');
    $other->init(1, Polyverso::Tensor->ones([2]));
    $other->set_updater(sub { $other->close });
    like(failure(sub { $other->push(1, Polyverso::Tensor->ones([2])) }), qr/MV_EREENTRANT/, 'no close inside the updater');
    $other->set_updater(undef);
    $other->close;
    like(failure(sub { $other->push(1, Polyverso::Tensor->ones([2])) }), qr/closed/, 'a close afterwards');
}

# The result of an updater
my $kept;
for my $case (
    [sub { $_[2] + $_[1] },                                 3, 'a new tensor replaces what is stored'],
    [sub { $_[2]->pdl + $_[1]->pdl },                       3, 'so does a PDL'],
    [sub { my $sum = $_[2] * 2; $sum += $_[1]; $sum },      5, 'one that was changed itself'],
    [sub { return $_[1] },                                  1, 'or what was pushed'],
    [sub { [([3, 3, 3]) x 2] },                             3, 'or a list of numbers'],
    [sub { $_[2] += $_[1] },                                3, 'the stored tensor itself is in place'],
    [sub { $_[2] += $_[1]; $kept = $_[1] },                 3, 'after a change a result is ignored'],
    [sub { $_[2]->fill(7); $kept = $_[1] * 2 },             7, 'of any kind'],
    [sub { $_[2]->axpy(2, $_[1]); $kept = $_[1] * 2 },      4, 'of any kind'],
    [sub { $_[2]->pdl->inplace->plus(1, 0); $_[1] * 9 },    3, 'in its memory too'],
    [sub { my $p = $_[2]->pdl; $p += 4; $p },               6, 'whose PDL is in place'],
    [sub { $_[2]->row(0)->fill(2); $_[2]->row(1)->fill(2); $_[2]->row(1) }, 2, 'and whose rows are'],
    [sub { $_[2] += $_[1]; 5 },                             3, 'a number too'],
    [sub { my $p = $_[2]->pdl; $p += 0; 5 },                2, 'even if its memory has the same values as before'],
    [sub { return },                                        2, 'and nothing changes nothing'],
) {
    my ($updater, $expected, $name) = @$case;
    $kv->set_updater(undef);
    $kv->push(3, ones() * 2);
    $kv->set_updater($updater);
    $kv->push(3, ones());
    $kv->pull(3, $a);
    holds($a, $expected, $name);
}
$kv->set_updater(sub { $_[2]->row(0) + 1 });
like(failure(sub { $kv->push(3, ones()) }), qr/MV_ESHAPE: key "3" holds shape \(2, 3\), the updater returned \(3\)/, 'a result of another shape');
$kv->set_updater(sub { return 5 });
like(failure(sub { $kv->push(3, ones()) }),
    qr/MV_EINVAL: key "3": the updater returned "5" and did not change .* of shape \(2, 3\)/, 'a single number');
for my $odd ('abc', {}, sub { }) {
    $kv->set_updater(sub { return $odd });
    like(failure(sub { $kv->push(3, ones()) }), qr/MV_EINVAL: key "3": the updater returned .* and did not change/, 'something else');
}
$kv->set_updater(undef);
$kv->push(3, ones() * 8);
$kv->set_optimizer('mx.sgd learning_rate=0.5');
$kv->pushpull(3, ones(), $a);
holds($a, 7.5, 'an optimizer takes its place');
$kv->set_optimizer('mx.sgd', learning_rate => 0.25, momentum => 0);
$kv->pushpull(3, ones(), $a);
holds($a, 7.25, 'with its parameters as pairs');
for my $parameters ([lr_mult => 0], ['lr_mult=0'], [{ lr_mult => 0 }]) {
    $kv->set_key_parameters(3, @$parameters);
    $kv->pushpull(3, ones(), $a);
    holds($a, 7.25, 'multipliers as pairs, as text, in a hash');
    $kv->set_key_parameters(3, '');
}
like(failure(sub { $kv->set_optimizer('mx.sgd', 'learning_rate') }), qr/"learning_rate" has no value/, 'half a pair');
like(failure(sub { $kv->set_optimizer('mx.sgd', learning_rat => 1) }), qr/learning_rate/, 'an unknown parameter of a pair');
like(failure(sub { $kv->set_optimizer('mx.sgd', learning_rate => $_) }), qr/learning_rate is /, 'no value') for undef, [], 'fast and good', '';
like(failure(sub { $kv->set_optimizer($_) }), qr/an optimizer's name is needed/, 'no name') for undef, {};

# PDLs and numbers
$kv->set_updater(undef);
my $plain = Polyverso::KVStore->create('local');
$plain->init('w', PDL->sequence(PDL::float(), 3, 2));
$plain->pull('w', $a);
is_deeply($a->to_list, [[0, 1, 2], [3, 4, 5]], 'a PDL of dims (3, 2) is a tensor of shape (2, 3)');
$plain->push('w', PDL->ones(3, 2));
$plain->pull('w', my $into = PDL->zeroes(3, 2));
is("@{[$into->list]} @{[$into->type]}", '1 1 1 1 1 1 double', 'other types are converted, there and back');
$plain->push('w', [PDL->ones(3, 2), PDL->ones(3, 2) * 4]);
my $whole = PDL->zeroes(6, 2);
$plain->pull('w', $whole->slice('0:-1:2'));
is("@{[$whole->list]}", join(' ', (5, 0) x 6), 'two devices; into a slice');
$plain->push('w', [[1, 2, 3], [4, 5, 6]]);
$plain->pull('w', $a);
is_deeply($a->to_list, [[1, 2, 3], [4, 5, 6]], 'nested lists of numbers');
$plain->push('w', [1 .. 6]);
$plain->pull('w', $a);
is_deeply($a->to_list, [[1, 2, 3], [4, 5, 6]], 'and flat ones of the right size');
$plain->push('w', pack 'f*', 7 .. 12);
$plain->pull('w', $a);
is_deeply($a->to_list, [[7, 8, 9], [10, 11, 12]], 'a packed string');
like(failure(sub { $plain->push('w', pack 'f*', 1 .. 5) }), qr/EINVAL: \$kv->push: .* packed string of the key's size/, 'of a wrong size');
$plain->init(['v', 'd'], [[1, 2], PDL->pdl(3, 4)]);
$plain->push(['v', 'd'], [[3, 4], [5, 6]]);
$plain->pull(['v', 'd'], my $both = [PDL->zeroes(2), PDL->zeroes(2)]);
is("@{[map { $_->list } @$both]}", '3 4 5 6', 'lists for several keys, of their dtypes');
my $later = $plain->pull('v', my $late = PDL->zeroes(2), async => 1);
$later->wait;
is("@{[$late->list]}", '3 4', 'a pull meanwhile');
$plain->pushpull('v', my $pair = PDL->pdl(7, 8));
is("@{[$pair->list]}", '7 8', 'pushpull');
like(failure(sub { $plain->push('w', PDL->ones(2, 3)) }), qr/ESHAPE.*"w" holds f32 \(2, 3\), not f32 \(3, 2\)/, 'a transposed PDL');
like(failure(sub { $plain->push('w', [[1, 2], [3]]) }), qr/ESHAPE.*the list at index 1/, 'a ragged list');
like(failure(sub { $plain->push('w', ['x', 2]) }), qr/EDTYPE.*index 0 is "x"/, 'no numbers');
like(failure(sub { $plain->push('w', $_) }), qr/EINVAL: \$kv->push: /, 'no values') for undef, {}, 'text', sub { };
like(failure(sub { $plain->pull('w', $_) }), qr/EINVAL: \$kv->pull: /, 'no place') for undef, {}, 'text', [1, 2];
like(failure(sub { $plain->push('w', ones(), 'priority') }), qr/"priority" has no value/, 'half an option');

# Rows
my $rows = $class->zeros([3, 3])->to_sparse;
$kv->init('e', $class->ones([3, 3])->to_sparse);
for my $case ([[0, 2], [1, 0, 1]], [[2, 2], [0, 0, 1]], [PDL->pdl(PDL::longlong(), 1, 0), [1, 1, 0]]) {
    my ($ids, $expected) = @$case;
    $kv->row_sparse_pull('e', $rows, $ids);
    is_deeply($rows->to_dense->to_list, [map { [($_) x 3] } @$expected], "rows $ids");
}

# Compression
my $lossy = Polyverso::KVStore->create('local');
$lossy->init('g', $class->zeros($shape));
$lossy->set_gradient_compression({ type => '2bit', threshold => 0.5 });
for my $case ([0.3, 0], [0.3, 0.5], [-1.2, -0.5]) {
    $lossy->push('g', ones() * $case->[0]);
    $lossy->pull('g', $a);
    holds($a, $case->[1], "$case->[0] in two bits");
}
like(failure(sub { $lossy->set_gradient_compression({ threshold => 1 }) }), qr/the type is missing: \{type => '2bit', threshold => 1\}/, 'no type');
Polyverso::KVStore->create('local')->set_gradient_compression('2bit', threshold => 1);
like(failure(sub { $lossy->set_gradient_compression('3bit') }), qr/2bit/, 'an unknown codec lists the known ones');

# Commands
my $node = Polyverso->init;
my $dist = Polyverso::KVStore->create('dist_sync', $node);
my @commands;
Polyverso::KVStore->set_controller(sub {
    my ($head, $body) = @_;
    push @commands, "$head $body";
    die "no such command\n" if $head == 13;
}, $node);
$dist->send_command(1, 'one');
like(failure(sub { $dist->send_command(13, 'x') }), qr/MV_EINVAL: .*no such command/, "what a controller dies of is the sender's error");
is_deeply(\@commands, ['1 one', '13 x'], 'commands are executed here, in order');
ok(Polyverso::KVStore->run_commands(node => $node), 'workers are there');
Polyverso::KVStore->set_controller(undef, $node);
$dist->init('w', ones());
$dist->pushpull('w', [ones(), ones()], $a);
holds($a, 2, 'a dist store of one');
$dist->leave;
like(failure(sub { $dist->push('w', ones()) }), qr/MV_ESTATE.*left/, 'who has left pushes no more');
$node->shutdown;
like(failure(sub { $dist->pull('w', $a) }), qr/MV_EHANDLE/, 'a store ends with its node');

{
    my ($one, $third) = (Polyverso::KVStore->create('local'), 1 / 3);
    $one->init(['a', 'b'], [map { $class->zeros([1], 'f64') } 1, 2]);
    $one->set_optimizer('mx.sgd', learning_rate => $third);
    $one->set_key_parameters('b', lr_mult => $third);
    $one->push(['a', 'b'], [map { $class->ones([1], 'f64') } 1, 2]);
    $one->pull(['a', 'b'], [my @values = map { $class->zeros([1], 'f64') } 1, 2]);
    ok($values[0]->to_list->[0] == -$third && $values[1]->to_list->[0] == -$third * $third, 'parameters have all digits of a number');
}

{
    my $cluster = TestCluster->new(2);
    my $begin   = 'use Polyverso::KVStore; my $node = Polyverso->init(log_level => "error");';
    my $create  = 'my $kv = Polyverso::KVStore->create("dist_sync", $node);';
    my $init    = 'eval { $kv->init("w", Polyverso::Tensor->ones(\@shape)) }; print $@->text; $node->shutdown';
    my @workers = map { [$cluster->start("my \@shape = ($_); $begin $create $init")] } '2, 3', '3, 2';
    for my $worker (@workers) {
        is($cluster->finish($worker->[0], 30), 0, 'workers that disagree about a shape');
        like(TestCluster::text($worker->[1]),
            qr/\A\$kv->init: key "w": worker \d .*requests a (\d x \d) matrix of f32, others request a (?!\1)\d x \d matrix of f32\z/,
            'see only the key and the difference');
    }
}

done_testing;
