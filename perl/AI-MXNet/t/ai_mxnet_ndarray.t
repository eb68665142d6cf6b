# AI::MXNet::NDArray: construction, views, copies, operators, dtypes, errors.

use strict;
use warnings;

use Test::More;

use AI::MXNet qw(mx);
use PDL;
use Scalar::Util qw(refaddr);

sub holds {
    my ($array, $expected, $name) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;
    return is_deeply($array->aspdl->unpdl, $expected, $name);
}
sub failure { my ($code) = @_; return eval { $code->(); 1 } ? 'nothing' : ref $@ ? $@->name : "$@" }

# ------------------------------------------------------------------ construction

holds(mx->nd->zeros([2, 3]), [[0, 0, 0], [0, 0, 0]], 'zeros');
holds(mx->nd->ones([2], dtype => 'int32'), [1, 1], 'ones');
holds(mx->nd->full([2], 2.5), [2.5, 2.5], 'full');
holds(mx->nd->empty([1, 1]), [[0]], 'empty');
holds(mx->nd->array([[1, 2], [3, 4], [5, 6]]), [[1, 2], [3, 4], [5, 6]], 'array');
holds(mx->nd->array(sequence(3, 2)), [[0, 1, 2], [3, 4, 5]], 'of a PDL');
holds(mx->nd->array([mx->nd->ones([2]), pdl(3, 4)]), [[1, 1], [3, 4]], 'of arrays and PDLs in an array');
holds(mx->nd->array(pdl(7)), [7], 'of a PDL without dimensions');
require PDL::Matrix;
my $matrix = PDL::Matrix->pdl([[1, 2, 3], [4, 5, 6]]);
holds(mx->nd->array($matrix), [[1, 2, 3], [4, 5, 6]], 'of a PDL::Matrix');
is_deeply([mx->nd->array($matrix)->asmpdl->dims], [2, 3], 'and as one');
holds(mx->nd->arange(stop => 4), [0, 1, 2, 3], 'arange');
holds(mx->nd->arange(start => 1, stop => 2, step => 0.5, repeat => 2), [1, 1, 1.5, 1.5], 'arange with steps');
holds(mx->nd->arange(start => 3), [0, 1, 2], 'arange to its start');
my $small = mx->nd->array([1, 2], ctx => mx->cpu(3), dtype => 'float16');
is_deeply([$small->dtype, $small->context . '', $small->shape, $small->size, $small->ndim, $small->len],
    ['float16', 'cpu(3)', [2], 2, 1, 2], 'what an array is');
is(mx->nd->ones([2, 3], mx->cpu(1))->context, 'cpu(1)', 'a context by position');
is(mx->nd->ones([2, 3], { dtype => 'float64' })->dtype, 'float64', 'options as a hash');
is("$small", '<AI::MXNet::NDArray 2 @cpu(3)>', 'as text');
my $out = mx->nd->zeros([2]);
is(refaddr(mx->nd->full([2], 4, out => $out)), refaddr($out), 'out');
holds($out, [4, 4], 'filled');
for my $case ([float32 => 'float'], [float64 => 'double'], [float16 => 'float'], [bfloat16 => 'float'], [int64 => 'longlong'],
    [int32 => 'long'], [uint8 => 'byte'], [int8 => 'sbyte']) {
    my ($dtype, $type) = @$case;
    my $array = mx->nd->array([1, 100], dtype => $dtype);
    is_deeply([$array->dtype, $array->aspdl->type . '', $array->aspdl->unpdl], [$dtype, $type, [1, 100]], $dtype);
}

# ------------------------------------------------------------------ views

my $a = mx->nd->array([[1, 2, 3], [4, 5, 6]]);
$a->at(1) .= 9;
holds($a, [[1, 2, 3], [9, 9, 9]], 'a row is a view');
$a->at(-2) .= [7, 8, 9];
holds($a, [[7, 8, 9], [9, 9, 9]], 'from the end');
holds($a->slice([0, 1]), [[7, 8, 9], [9, 9, 9]], 'first and last');
holds($a->slice(1), [[9, 9, 9]], 'one keeps its dimension');
$a->slice([1]) .= pdl([[1, 2, 3]]);
is($a->slice(1, 2)->asscalar, 3, 'one element');
is($a->at(1, -1)->asscalar, 3, 'at too');
$a->slice('X', [0, 1]) .= mx->nd->zeros([2, 2]);
$a->slice(0, 0) += 5;
holds($a, [[5, 0, 9], [0, 0, 3]], 'boxes are written into');
holds($a->slice('X', 2) * 2, [[18], [6]], 'and read');
holds(10 - $a->slice('X', 2), [[1], [7]], 'on either side');
holds($a->slice([[1, 0], [2, 0]]), [3, 5], 'elements by their positions');
holds($a->slice(begin => [0, 1], end => [2, 3]), [[0, 9], [0, 3]], 'a box by its corners');
my $half = mx->nd->zeros([2, 2], dtype => 'float16');
$half->slice('X', 1) .= 1.5;
holds($half, [[0, 1.5], [0, 1.5]], 'boxes of halves');

my $r = $a->reshape([3, 6 / 3]);
$r->at(0) .= 1;
holds($a, [[1, 1, 9], [0, 0, 3]], 'a reshape is a view');
my $t = mx->nd->arange(stop => 30)->reshape([2, 3, 5]);
is_deeply($t->reshape($_->[0], reverse => $_->[2] // 0)->shape, $_->[1], "reshape (@{$_->[0]})")
    for [[-1] => [30]], [[0, -1] => [2, 15]], [[6, 5.0] => [6, 5]], [[-2] => [2, 3, 5]], [[-3, -1] => [6, 5]],
    [[-4, 1, -1, -2] => [1, 2, 3, 5]], [[-1, 0] => [10, 3]], [[-1, 0] => [6, 5], 1];
is_deeply($t->expand_dims(1)->shape, [2, 1, 3, 5], 'expand_dims');

is_deeply([map { $_->aspdl->unpdl } @$a], [[1, 1, 9], [0, 0, 3]], 'an array in list context');
$_ += 1 for @$a;
holds($a, [[2, 2, 10], [1, 1, 4]], 'its rows are views');
is(scalar @{ mx->nd->ones([1, 4]) }, 1, 'of one row, too');
holds($a->[1], [1, 1, 4], 'a row by its index');

# ------------------------------------------------------------------ memory

my $view = $a->aspdl_view;
my $copy = $a->aspdl;
$view->slice('0,0') .= 50;
is($a->at(0, 0)->asscalar, 50, 'a PDL upon the memory');
is($copy->at(0, 0), 2, 'a copy is none');
undef $a;
mx->nd->zeros([2, 3]) for 1 .. 10;
is_deeply($view->unpdl, [[50, 2, 10], [1, 1, 4]], 'it keeps the array');

my $b     = mx->nd->ones([2]);
my $alias = $b;
$alias += 1;
$alias *= 3;
$alias .= $alias - 1;
holds($b, [5, 5], 'in-place operators change all names of an array');
$b = $b + 1;
holds($alias, [5, 5], 'the others make a new one');
my $other = $b->copy;
$other .= 0;
holds($b, [6, 6], 'a copy is another array');
is(refaddr($b->as_in_context(mx->cpu(0))), refaddr($b), 'already there');
my $moved = $b->as_in_context(mx->cpu(2));
is($moved->context, 'cpu(2)', 'moved');
$moved .= 0;
holds($b, [6, 6], 'that is a copy');
is(($moved + 1)->context, 'cpu(2)', 'results are where their operands are');
$b->copyto($moved);
holds($moved, [6, 6], 'copyto an array');
is($b->astype('int32')->dtype, 'int32', 'astype');

# ------------------------------------------------------------------ arithmetic

my $x = mx->nd->array([[1, -2], [3, 4]]);
my $y = mx->nd->array([10, 20]);
holds($x + $y, [[11, 18], [13, 24]], '+');
holds($x - 1, [[0, -3], [2, 3]], '-');
holds(1 - $x, [[0, 3], [-2, -3]], 'a number first');
holds($x * $y, [[10, -40], [30, 80]], '*');
holds(12 / $x, [[12, -6], [4, 3]], '/');
holds($x**2, [[1, 4], [9, 16]], '**');
holds(2**$x, [[2, .25], [8, 16]], 'a power');
holds($x % 3, [[1, 1], [0, 1]], "% has the divisor's sign");
holds(-5 % mx->nd->array([3, -3]), [1, -2], 'of both');
holds(-$x, [[-1, 2], [-3, -4]], 'negated');
holds(abs $x, [[1, 2], [3, 4]], 'abs');
holds(sqrt(mx->nd->array([4, 9])), [2, 3], 'sqrt');
holds($x > 1, [[0, 0], [1, 1]], '>');
holds(1 >= $x, [[1, 1], [0, 0]], '>=, a number first');
is(($x == $x)->dtype, 'float32', 'comparisons of floats give floats');
holds(mx->nd->array([7, -7], dtype => 'int32') / 2, [3, -3], 'quotients of integers are integers');
is((mx->nd->ones([1]) + mx->nd->ones([1], dtype => 'float64'))->dtype, 'float64', 'the wider dtype');
$x **= 2;
$x %= 5;
holds($x, [[1, 4], [4, 1]], 'in place');
holds($x . '' eq "$x" ? $x : undef, [[1, 4], [4, 1]], 'text is no assignment');

holds(mx->nd->sqrt($x), [[1, 2], [2, 1]], 'a function');
holds($x->square, [[1, 16], [16, 1]], 'a method');
mx->nd->square($x, { out => $x });
holds($x, [[1, 16], [16, 1]], 'into an array');
holds(mx->nd->clip($x, 2, 10), [[2, 10], [10, 2]], 'clip');
holds($x->clip(a_min => 2, a_max => 10), [[2, 10], [10, 2]], 'by name');
holds(mx->nd->maximum($x, 3), [[3, 16], [16, 3]], 'maximum');
holds(mx->nd->array([-2, 0, 3])->sign, [-1, 0, 1], 'sign');
holds(mx->nd->elemwise_add($x, $x), [[2, 32], [32, 2]], 'elemwise_add');
holds($x->sum, [34], 'sum');
holds($x->sum(axis => 0), [17, 17], 'along an axis');
holds($x->mean(axis => -1, keepdims => 1), [[8.5], [8.5]], 'keepdims');
holds($t->sum([0, 1]), [75, 81, 87, 93, 99], 'along two');
holds($x->max, [16], 'max');
holds($x->argmax(axis => 1), [1, 0], 'argmax');
is($x->norm->asscalar, mx->nd->sqrt($x->square->sum)->asscalar, 'norm');
holds(mx->nd->dot($x, mx->nd->array([[1], [2]])), [[33], [18]], 'dot of matrices');
holds(mx->nd->dot($y, $y), [500], 'of vectors');
holds(mx->nd->dot($x, $y), [330, 180], 'of both');
holds(mx->nd->dot(mx->nd->ones([3, 2]), mx->nd->ones([3, 2]), transpose_a => 1), [[3, 3], [3, 3]], 'transposed');
holds(mx->nd->array([[1, 2, 3], [4, 5, 6]])->T, [[1, 4], [2, 5], [3, 6]], 'T');
is_deeply($t->transpose->shape, [5, 3, 2], 'transpose');
is_deeply($t->moveaxis(0, 2)->shape, [3, 5, 2], 'moveaxis');
is($t->transpose(axes => [2, 0, 1])->at(4, 1, 2)->asscalar, 29, 'to where the axes say');
holds($y->broadcast_to([2, 2]), [[10, 20], [10, 20]], 'broadcast_to');
holds(mx->nd->concatenate([$y, $y]), [10, 20, 10, 20], 'concatenate');
holds(mx->nd->concatenate([$x, $x->slice('X', 0)->sever], axis => 1), [[1, 16, 1], [16, 1, 16]], 'along the other axis');
is_deeply([map { $_->aspdl->unpdl } @{ $x->split(num_outputs => 2, squeeze_axis => 1) }], [[1, 16], [16, 1]], 'split');
holds($x->zeros_like, [[0, 0], [0, 0]], 'zeros_like');

# ------------------------------------------------------------------ errors

is(failure(sub { $x + mx->nd->ones([3]) }), 'MV_ESHAPE', 'shapes');
is(failure(sub { $x .= [1, 2, 3] }), 'MV_ESHAPE', 'shapes of assignments');
is(failure(sub { $x + 'one' }), 'MV_EDTYPE', 'words');
is(failure(sub { mx->nd->zeros([2], dtype => 'int32') + 0.5 }), 'MV_EDTYPE', 'half an integer');
is(failure(sub { mx->nd->zeros([2], dtype => 'complex64') }), 'MV_EINVAL', 'dtypes');
is(failure(sub { mx->nd->zeros([2], type => 'float32') }), 'MV_EINVAL', 'options');
is(failure(sub { mx->nd->zeros([2.5]) }), 'MV_EINVAL', 'lengths that are no integers');
is(failure(sub { $x->at(2) }), 'MV_ERANGE', 'positions');
is(failure(sub { $x->slice([1, 0]) }), 'MV_ERANGE', 'slices that end before they begin');
is(failure(sub { $x->asscalar }), 'MV_ESHAPE', 'scalars');
is(failure(sub { $x->as_in_context(mx->gpu(1)) }), 'MV_ENOSYS', 'cards');
is(failure(sub { mx->nd->concatenate([$x, mx->nd->ones([2, 3])]) }), 'MV_ESHAPE', 'concatenation');
$x->writable(0);
is(failure(sub { $x += 1 }), 'MV_ESTATE', 'what is not writable');
my $said = eval { my $sum = mx->nd->ones([2]) + mx->nd->ones([3]); 1 } ? '' : "$@";
like($said, qr/\(2,\) and \(3,\).* at \Q$0\E line ${\ (__LINE__ - 1)}/, 'a sentence, with the line');

# ------------------------------------------------------------------ Storable

require Storable;
for my $array (mx->nd->array([[1, 2], [3, 4]], dtype => 'float16', ctx => mx->cpu(2)), mx->nd->zeros([3, 2], stype => 'row_sparse')) {
    my $stored = Storable::thaw(Storable::freeze([$array]))->[0];
    my $clone  = Storable::dclone($array);
    is_deeply([ref $_, $_->dtype, "$_", $_->aspdl->unpdl], [ref $array, $array->dtype, "$array", $array->aspdl->unpdl], 'is stored') for $stored, $clone;
    undef $clone;
    $stored .= 5 if $array->stype eq 'default';
    is($array->size, $array->aspdl->nelem, 'and the original goes on');
}
like(eval { Storable::dclone(mx->nd->ones([1])->tensor); 1 } ? '' : "$@", qr/Storable/, 'a tensor is not');

# ------------------------------------------------------------------ lvalues

{
    my $array = mx->nd->array([[1, 2], [3, 4]]);
    $array->T .= 4;
    $array->aspdl .= 4;
    $array->copy += 1;
    $array->astype('float64') .= 1;
    $array->as_in_context(mx->cpu(1)) .= 9;
    mx->nd->ones([2]) .= 3;
    mx->nd->array([1]) += 1;
    is_deeply($array->aspdl->unpdl, [[1, 2], [3, 4]], 'copies may be assigned to');
    $array->as_in_context($array->context) .= 7;
    is_deeply($array->aspdl->unpdl, [[7, 7], [7, 7]], 'the array itself, too');
    $array->slice('X', 0) %= 4;
    is_deeply($array->aspdl->unpdl, [[3, 7], [3, 7]], 'a remainder in a box');
}

# ------------------------------------------------------------------ wrong input

sub refusal { my ($code) = @_; return eval { $code->(); 1 } ? 'nothing' : $@->name . ': ' . $@->text }
is_deeply(mx->nd->array([pdl(1, 2), pdl(3, 4)])->aspdl->unpdl, [[1, 2], [3, 4]], 'a list of PDLs');
is_deeply(mx->nd->array([pdl(0), pdl(3)])->shape, mx->nd->array([pdl(1), pdl(3)])->shape, 'its shape does not depend on its values');
like(refusal(sub { mx->nd->ones([2], ctx => 'gpu(0)') }), qr/MV_EINVAL: ctx is 'gpu\(0\)': a context is needed/, 'a text is no context');
like(refusal(sub { mx->gpu($_) }), qr/MV_EINVAL: mx->gpu\(\Q$_\E\): a device has a number, from 0/, "gpu($_)") for -1, 'x', 0.5;
like(refusal(sub { mx->nd->zeros([3, 4])->slice(begin => [1], end => [9]) }), qr/MV_ERANGE: slice from 1 to 9 .* its length is 3/, 'beyond the end');
like(refusal(sub { mx->nd->zeros([2, 3])->split(num_outputs => 2) }), qr/MV_EINVAL: split: num_outputs is 2, which does not divide the length 3/, 'uneven parts');
like(refusal(sub { mx->nd->array([300], dtype => 'uint8') }), qr/MV_EDTYPE: .*"300", not an integer of 0 .. 255/, 'not in the range');

done_testing;
