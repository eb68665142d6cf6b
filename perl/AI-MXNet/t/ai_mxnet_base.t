# AI::MXNet's smaller parts: Base, Context, Random, TestUtils.

use strict;
use warnings;

use Test::More;

use AI::MXNet qw(mx);
use AI::MXNet::Base qw(zip enumerate product bisect_left pdl_shuffle as_array pzeros pones pceil pdl DTYPE_MX_TO_PDL);
use AI::MXNet::Context 'context';
use AI::MXNet::NDArray qw(nd);
use AI::MXNet::TestUtils qw(same almost_equal allclose reldiff same_array randint rand_shape_2d rand_shape_3d rand_ndarray
    random_arrays dies_like pdl_maximum pdl_minimum);

sub failure { my ($code) = @_; return eval { $code->(); 1 } ? 'nothing' : ref $@ ? $@->name : "$@" }

# ------------------------------------------------------------------ names

is(mx, 'AI::MXNet', 'mx');
is(mx->nd, 'AI::MXNet::NDArray', 'mx->nd');
is(nd->ones([1])->asscalar, 1, 'a class under another name');
is(context->cpu(1), 'cpu(1)', 'another one');
is(mx->test_utils->same(pdl(1, 2), pdl(1, 2)), 1, 'mx->test_utils');

# ------------------------------------------------------------------ Base

my @seen;
zip(sub { push @seen, "@_" }, [1, 2], [3, 4]);
is_deeply(\@seen, ['1 3', '2 4'], 'zip with a function');
is_deeply([zip([1, 2], [3, 4])], [[1, 3], [2, 4]], 'and without');
is_deeply([zip(mx->nd->array([5, 6]), [1, 2])]->[1][0]->asscalar, 6, 'of an array');
@seen = ();
enumerate(sub { push @seen, "@_" }, ['a', 'b']);
is_deeply(\@seen, ['0 a', '1 b'], 'enumerate');
is(product(2, 3, 4), 24, 'product');
is_deeply(as_array(3), [3], 'as_array');
is_deeply([map { bisect_left([1, 3, 3, 5], $_) } 0, 3, 4, 9], [0, 1, 3, 4], 'bisect_left');

is_deeply(pzeros(2, 3)->unpdl, [[0, 0], [0, 0], [0, 0]], 'pzeros');
is_deeply(pones(2)->unpdl, [1, 1], 'pones');
is(pceil(pdl(1.2))->sclr, 2, 'pceil');
my $matrix = pdl([[1, 2, 3], [4, 5, 6]]);
is_deeply($matrix->at(1)->unpdl, [4, 5, 6], 'one index of a piddle with more dimensions');
is($matrix->at(2, 1), 6, 'all of them');
is(pdl(7, 8)->at(1), 8, 'of one dimension');
is($matrix->len, 2, 'len');
is($matrix->float->dtype, 'float32', 'dtype');
is_deeply(pdl_shuffle($matrix, [1, 0])->unpdl, [[4, 5, 6], [1, 2, 3]], 'pdl_shuffle');
is_deeply([sort { $a <=> $b } @{ pdl_shuffle(pdl(1, 2, 3))->unpdl }], [1, 2, 3], 'at random');
is(PDL::Type->new(DTYPE_MX_TO_PDL->{int64}), 'longlong', 'types by their names');

# ------------------------------------------------------------------ Context

is(mx->cpu, 'cpu(0)', 'cpu');
ok(mx->cpu(1) == mx->cpu(1) && mx->cpu(1) != mx->cpu(2), 'compared');
ok(mx->cpu(1) ne 'cpu(2)' && mx->cpu(1) eq 'cpu(1)', 'as text, too');
is(AI::MXNet::Context->new('cpu', 2)->device_id, 2, 'new');
is(AI::MXNet::Context->new(mx->cpu(3)), 'cpu(3)', 'of another');
is(AI::MXNet::Context->current_ctx, 'cpu(0)', 'current');
is(mx->cpu_pinned(1)->device_type_id, 3, 'pinned');
is(mx->gpu(2), 'gpu(2)', 'a card');
is(mx->gpu(2)->device_type_id, 2, 'its number');
is(mx->num_gpus, 0, 'no cards here: ai_mxnet_gpu.t has some');
like(eval { mx->nd->ones([2], ctx => mx->gpu); 1 } ? '' : $@->text, qr/make cuda|driver|no device/, 'which the first array says');

# ------------------------------------------------------------------ Random

mx->random->seed(7);
my @first = (mx->random->uniform(-1, 1, [100]), mx->random->normal(10, 2, shape => [1000]));
mx->random->seed(7);
my @second = (mx->nd->random->uniform({ low => -1, high => 1, shape => [100] }), mx->random->normal(10, 2, [1000], { ctx => mx->cpu(1) }));
ok(same($first[$_]->aspdl, $second[$_]->aspdl), 'the same for a seed') for 0, 1;
is($second[1]->context, 'cpu(1)', 'where it was asked for');
ok(abs($first[1]->mean->asscalar - 10) < 0.3, 'mean');
ok(abs(($first[1]->aspdl->stats)[6] - 2) < 0.2, 'deviation');
ok($first[0]->aspdl->min >= -1 && $first[0]->aspdl->max <= 1, 'range');
ok(!same(mx->random->uniform(shape => [3])->aspdl, mx->random->uniform(shape => [3])->aspdl), 'another one each time');
my $integers = mx->random->randint(2, 5, shape => [200]);
is_deeply([$integers->dtype, $integers->aspdl->uniq->unpdl], ['int32', [2, 3, 4]], 'randint');
is(mx->random->uniform(0, 1, out => mx->nd->zeros([2, 2], dtype => 'float64'))->dtype, 'float64', 'out');
is(failure(sub { mx->random->uniform(0, 1, shap => [3]) }), 'MV_EINVAL', 'options');

# ------------------------------------------------------------------ TestUtils

ok(same(pdl(1, 2), pdl(1, 2)) && !same(pdl(1, 2), pdl(1, 3)), 'same');
ok(almost_equal(pdl(1, 2), pdl(1, 2 + 1e-7)) && !almost_equal(pdl(1, 2), pdl(1, 2.1)), 'almost_equal');
ok(almost_equal(pdl(1, 2), pdl(1, 2.1), 0.1), 'with a limit');
is(reldiff(pdl(1, 1), pdl(3, 1)), 2 / 6, 'reldiff');
ok(allclose(pdl(1), pdl(1.01), 0.1), 'allclose');
my $array = mx->nd->ones([3]);
ok(same_array($array, $array->reshape([3])) && !same_array($array, $array->copy), 'same_array');
is_deeply($array->aspdl->unpdl, [1, 1, 1], 'left as it was');
ok(!(grep { my $n = randint(2, 4); $n < 2 || $n > 3 } 1 .. 100), 'randint');
is(scalar @{ rand_shape_3d() }, 3, 'rand_shape_3d');
is_deeply(rand_ndarray([3, 2], 'default')->shape, [3, 2], 'rand_ndarray');
is(rand_ndarray([3, 2], 'row_sparse', 1)->stype, 'row_sparse', 'row-sparse');
is_deeply([random_arrays([2, 3])->dims], [3, 2], 'random_arrays');
ok(dies_like(sub { die 'because' }, qr/because/), 'dies_like');
is_deeply([map { $_->unpdl } pdl_maximum(pdl(1, 5), 3), pdl_minimum(pdl(1, 5), 3)], [[3, 5], [1, 3]], 'pdl_maximum, pdl_minimum');

done_testing;
