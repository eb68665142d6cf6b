# Polyverso::KVStore: keys, values, updaters and commands. AI::MXNet's interface to it has its own tests.

use strict;
use warnings;

use Test::More;

use PDL::Lite;
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

like(failure(sub { $kv->push('nobody', ones()) }), qr/MV_ENOTFOUND.*kv_init/, 'an unknown key');
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
$kv->set_optimizer('mx.sgd learning_rate=0.5');
$kv->pushpull(3, ones(), $a);
holds($a, 7.5, 'an optimizer takes its place');

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
like(failure(sub { $dist->send_command(13, 'x') }), qr/MV_EINVAL/, "what a controller dies of is the sender's error");
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

done_testing;
