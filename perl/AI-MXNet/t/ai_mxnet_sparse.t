# Row-sparse arrays, and arrays in files.

use strict;
use warnings;

use Test::More;

use AI::MXNet qw(mx);
use AI::MXNet::TestUtils qw(same almost_equal rand_ndarray rand_sparse_ndarray rand_shape_2d);
use File::Temp qw(tempdir);
use PDL;

sub holds {
    my ($array, $expected, $name) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;
    return is_deeply($array->aspdl->unpdl, $expected, $name);
}
sub failure { my ($code) = @_; return eval { $code->(); 1 } ? 'nothing' : ref $@ ? $@->name : "$@" }

my $sparse = mx->nd->sparse;
my $rows = $sparse->row_sparse_array([[[1, 2], [3, 4]], [4, 1]], shape => [6, 2]);
isa_ok($rows, 'AI::MXNet::NDArray::RowSparse');
is_deeply([$rows->stype, $rows->shape, $rows->dtype, $rows->context . ''], ['row_sparse', [6, 2], 'float32', 'cpu(0)'], 'what it is');
like("$rows", qr/RowSparse 6x2/, 'as text');
is($rows->indices->dtype, 'int64', 'indices are integers');
holds($rows->indices, [1, 4], 'sorted');
holds($rows->data, [[3, 4], [1, 2]], 'with their rows');
holds($rows, [[0, 0], [3, 4], [0, 0], [0, 0], [1, 2], [0, 0]], 'all rows');
holds($sparse->row_sparse_array([[[1], [2], [3]], [0, 2, 0]], shape => [3, 1]), [[4], [0], [2]], 'repeated rows are summed');
is_deeply($sparse->row_sparse_array([[[1], [2]], [0, 7]])->shape, [8, 1], 'as many rows as the last index says');

my $none = $sparse->zeros('row_sparse', [3, 2], dtype => 'float64', ctx => mx->cpu(1));
is_deeply([$none->indices->shape, $none->dtype, $none->context . ''], [[0], 'float64', 'cpu(1)'], 'zeros');
is(mx->nd->zeros([3, 2], stype => 'row_sparse')->stype, 'row_sparse', 'of an array');
is($sparse->zeros('default', [3])->stype, 'default', 'dense');

my $dense = mx->nd->array([[0, 0], [1, 0], [0, 0]]);
holds($dense->tostype('row_sparse')->indices, [1], 'rows that hold anything');
is($dense->tostype('row_sparse')->tostype('default')->stype, 'default', 'and back');
holds(mx->nd->ones([2, 2])->tostype('row_sparse')->astype('int32')->data, [[1, 1], [1, 1]], 'astype');
holds($sparse->retain($rows, mx->nd->array([4, 0])), [[0, 0], [0, 0], [0, 0], [0, 0], [1, 2], [0, 0]], 'retain');

$rows->copyto(my $copy = mx->nd->zeros([6, 2]));
holds($copy, $rows->aspdl->unpdl, 'copied into a dense one');
$copy->copyto(my $back = $sparse->zeros('row_sparse', [6, 2]));
holds($back->indices, [1, 4], 'and from one');
is($rows->copyto(mx->cpu(2))->context, 'cpu(2)', 'to a device');
$back .= 0;
holds($back->indices, [], 'set');
my $alias = $back;
$alias += $rows;
holds($back->indices, [1, 4], 'in place');
$alias .= pdl([[1, 1]])->dummy(1, 6)->clump(1, 2);
is($back->indices->size, 6, 'to a PDL');

is(($rows + $rows)->stype, 'row_sparse', 'a sum of two stays sparse');
holds($rows + $rows, ($rows->aspdl * 2)->unpdl, 'and is right');
is(($rows * 2)->stype, 'row_sparse', 'so does a multiple');
is(($rows + 1)->stype, 'default', 'nothing else does');
holds(1 - $rows, (1 - $rows->aspdl)->unpdl, 'with numbers');
holds($rows == 0, ($rows->aspdl == 0)->unpdl, 'compared');

for (1 .. 3) {
    my $shape = rand_shape_2d();
    my ($array, $parts) = rand_sparse_ndarray($shape, 'row_sparse', density => 0.5);
    ok(same($array->aspdl, mx->nd->array($array->aspdl)->tostype('row_sparse')->aspdl), "@$shape there and back");
    my $dense = rand_ndarray($shape, 'default');
    ok(almost_equal(($array + $dense)->aspdl, $array->aspdl + $dense->aspdl), 'with a dense one');
}

is(failure(sub { $rows->at(0) }), 'MV_EINVAL', 'no views');
is(failure(sub { $sparse->zeros('csr', [2, 2]) }), 'MV_EINVAL', 'no csr');
is(failure(sub { $sparse->row_sparse_array([[[1]], [5]], shape => [3, 1]) }), 'MV_ERANGE', 'rows that are not there');
is(failure(sub { $sparse->row_sparse_array([[], []]) }), 'MV_ESHAPE', 'no rows, no shape');

# ------------------------------------------------------------------ files

my $folder = tempdir(CLEANUP => 1);
my %arrays = (
    (map { $_ => mx->nd->array([[1, 2, 3], [4, 5, 6]], dtype => $_) } qw(float32 float64 float16 bfloat16 int64 int32 uint8 int8)),
    'with a name' => mx->nd->array([7]),
    rows          => $rows,
);
mx->nd->save("$folder/named", \%arrays);
my $named = mx->nd->load("$folder/named");
is_deeply([sort keys %$named], [sort keys %arrays], 'names');
for my $name (sort keys %arrays) {
    is_deeply([map { $_->dtype, $_->stype, $_->shape, $_->aspdl->unpdl } $named->{$name}],
        [map { $_->dtype, $_->stype, $_->shape, $_->aspdl->unpdl } $arrays{$name}], $name);
}
mx->nd->save("$folder/list", [mx->nd->arange(stop => 3), mx->nd->ones([1])]);
my $list = mx->nd->load("$folder/list");
is(scalar @$list, 2, 'a list');
holds($list->[0], [0, 1, 2], 'in its order');
my $bytes = do { open my $file, '<:raw', "$folder/list" or die; local $/; <$file> };
holds(mx->nd->load_frombuffer($bytes)->[1], [1], 'from a buffer');
# The header that MXNet 1.9.1 writes for arange(3), byte for byte.
is(unpack('H*', substr $bytes, 0, 68), '1201000000000000' . '0000000000000000' . '0200000000000000' . 'c9fa93f9' . '00000000'
    . '01000000' . '0300000000000000' . '0100000000000000' . '00000000' . '00000000' . '0000803f' . '00000040', "MXNet's bytes");

for my $length (0, 7, 8, 30, 60, length($bytes) - 1) {
    is(failure(sub { mx->nd->load_frombuffer(substr $bytes, 0, $length) }), 'MV_EINVAL', "cut after $length bytes");
}
is(failure(sub { mx->nd->load_frombuffer('a' x 100) }), 'MV_EINVAL', 'something else');
is(failure(sub { mx->nd->load("$folder/none") }), 'MV_ENOTFOUND', 'no file');
is(failure(sub { mx->nd->save("$folder/list", [1]) }), 'MV_EINVAL', 'no array');

done_testing;
