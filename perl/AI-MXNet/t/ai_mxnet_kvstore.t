# AI::MXNet::KVStore: the behaviour that scripts rely on, and errors. The manual's examples are in
# ai_mxnet_kvstore_seed.t.

use strict;
use warnings;

use Test::More;

use FindBin;
use lib "$FindBin::Bin/lib";
use TestCluster;

use AI::MXNet qw(mx);

sub failure { my ($code) = @_; return eval { $code->(); 1 } ? 'nothing' : ref $@ ? $@->name : "$@" }
sub sentence { my ($code) = @_; return eval { $code->(); 1 } ? 'nothing' : ref $@ ? $@->text : "$@" }

sub is_all {
    my ($array, $value, $name) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;
    return ok(($array->aspdl == $value)->all, $name) || diag $array->aspdl;
}

my $shape = [4, 4];
my $kv    = mx->kv->create;
my $a     = mx->nd->empty($shape);

# Keys are strings, alone or in lists; values are arrays, or lists of arrays, one for each device.
$kv->init('a', mx->nd->zeros($shape));
$kv->init([5, 'b'], [map { mx->nd->zeros($shape) } 1 .. 2]);
$kv->push('5', mx->nd->ones($shape));
$kv->pull(5, out => $a);
is_all($a, 1, "5 is '5'");
my @devices = map { mx->cpu($_) } 0 .. 3;
my $values = [map { [map { mx->nd->ones($shape, ctx => $_) * 2 } @devices] } 1 .. 2];
$kv->push([5, 'b'], $values);
$kv->pull([5, 'b'], out => $values);
is_all($_, 8, 'lists of lists') for map { @$_ } @$values;
$kv->push('a', $a->slice([0, 3]));
$kv->pull('a', { out => $a });
is_all($a, 1, 'options as a hash');
my $pushed = mx->nd->ones($shape);
$kv->push('a', $pushed);
$pushed .= 7;
$kv->pull('a', out => $a);
is_all($a, 1, 'what was pushed is a snapshot');
$kv->pushpull('a', mx->nd->ones($shape) * 3, out => $a);
is_all($a, 3, 'pushpull');
$kv->broadcast('c', mx->nd->ones($shape) * 4, out => $a);
is_all($a, 4, 'broadcast');
my $part = mx->nd->zeros([8, 4]);
$kv->pull('c', out => $part->slice([4, 7]));
is($part->sum->asscalar, 64, 'into a view');

# Dtypes
for my $dtype (qw(float64 float16 bfloat16 int32 int8)) {
    $kv->init($dtype, mx->nd->zeros([3], dtype => $dtype));
    $kv->push($dtype, [map { mx->nd->ones([3], dtype => $dtype) } 1 .. 3]);
    $kv->pull($dtype, out => my $out = mx->nd->zeros([3], dtype => $dtype));
    is_all($out, 3, $dtype);
}

# Types
is(mx->kv->create($_)->type, lc $_, $_) for qw(local local_allreduce_cpu Device);
{
    my $kv = mx->kv->create;
    $kv->init(1, mx->nd->ones([2, 2]));
    my $wide = mx->nd->zeros([3, 3]);
    like(sentence(sub { $kv->pull(1, out => $wide->slice([0, 1], [1, 2])) }), qr/out is .*2x2.*, a box whose elements are not together: pull into an array/, 'a box');
}
like(sentence(sub { mx->kv->create('lokal') }), qr/lokal.*local.*dist_sync/, 'unknown ones are named, with those there are');

# Errors are reported, and the store remains usable.
is(failure(sub { $kv->push('none', $a) }), 'MV_ENOTFOUND', 'unknown keys');
is(failure(sub { $kv->push('a', mx->nd->ones([2])) }), 'MV_ESHAPE', 'shapes');
is(failure(sub { $kv->push('a', mx->nd->ones($shape, dtype => 'int32')) }), 'MV_EDTYPE', 'dtypes');
is(failure(sub { $kv->push('a', [1, 2]) }), 'MV_EDTYPE', 'numbers');
is(failure(sub { $kv->push(['a', 'a'], [$a, $a]) }), 'MV_EINVAL', 'a key twice');
is(failure(sub { $kv->pull('a') }), 'MV_EINVAL', 'no out');
is(failure(sub { $kv->pull('a', out => $a, outt => 1) }), 'MV_EINVAL', 'options that there are not');
is(failure(sub { $kv->pull('a', out => $a->slice('X', [0, 1])) }), 'MV_EDTYPE', 'boxes, which are no memory');
is(failure(sub { $kv->set_optimizer('adam') }), 'MV_EDTYPE', 'an optimizer by its name only');
$kv->pull('a', out => $a);
is_all($a, 3, 'as before');

# An optimizer, in a second store.
my $other = mx->kv->create;
$other->init('w', mx->nd->ones([2]));
$other->set_optimizer(mx->optimizer->create('sgd', learning_rate => 1, lr_scheduler => AI::MXNet::FactorScheduler->new(step => 1, factor => 0.5)));
$other->push('w', mx->nd->ones([2])) for 1 .. 3;
$other->pull('w', out => my $w = mx->nd->zeros([2]));
is_all($w, 1 - 1 - 0.5 - 0.25, 'with a schedule');
is(failure(sub { $other->pull('a', out => $a) }), 'MV_ENOTFOUND', 'stores have nothing in common');

# Two workers
my $script = '
    use AI::MXNet qw(mx);
    my $kv = mx->kv->create("dist_sync");
    my $a = mx->nd->zeros([3]);
    $kv->init("w", mx->nd->ones([3]) * (5 + $kv->rank));
    $kv->pull("w", out => $a);
    my $first = $a->at(0)->asscalar;
    $kv->push("w", mx->nd->ones([3]) * (1 + $kv->rank));
    $kv->pull("w", out => $a);
    my $merged = ($a * 1)->at(1)->asscalar;
    $kv->set_optimizer(mx->optimizer->create("sgd", learning_rate => 0.5)) if $kv->rank == 0;
    $kv->_barrier;
    $kv->push("w", mx->nd->ones([3]));
    $kv->pull("w", out => $a);
    printf "%s rank %d of %d: %g %g %g\n", $kv->type, $kv->rank, $kv->num_workers, $first, $merged, $a->at(2)->asscalar;
';
my $cluster = TestCluster->new(2);
my @started = map { [$cluster->start($script)] } 0, 1;
for my $rank (0, 1) {
    my ($pid, $output) = @{ $started[$rank] };
    is($cluster->finish($pid, 60), 0, "worker $rank ends well");
    is(TestCluster::text($output), "dist_sync rank $rank of 2: 5 3 2\n", 'with the values of all');
}

done_testing;
