# Polyverso::Tensor: operators, views, PDLs on a tensor's memory and tensors on a PDL's memory.

use strict;
use warnings;

use Test::More;

use PDL::Lite;
use Polyverso;
use Polyverso::Tensor;

my $class = 'Polyverso::Tensor';

sub numbers { my ($tensor, $expected, $name) = @_; return is_deeply($tensor->to_list, $expected, $name) }
sub failure { my ($name, $code) = @_; return eval { $code->(); 1 } ? 'nothing' : ref $@ ? $@->$name : "$@" }

my $matrix = $class->copy_of([[1, 2, 3], [4, 5, 6]]);
is_deeply($matrix->shape, [2, 3], 'shape');
is($matrix->dtype, 'f32', 'dtype');
is($matrix->info->{is_shared}, 1, 'in shared memory');
is("$matrix", "f32 (2, 3)\n[[1, 2, 3],\n [4, 5, 6]]", 'as text');

numbers($matrix + [10, 20, 30], [[11, 22, 33], [14, 25, 36]], 'a row with each row');
numbers(10 - $matrix, [[9, 8, 7], [6, 5, 4]], 'a number first');
numbers(-$matrix / 2, [[-.5, -1, -1.5], [-2, -2.5, -3]], 'negated, divided');
numbers($matrix > 3, [[0, 0, 0], [1, 1, 1]], 'compared');
numbers(sqrt(abs $class->copy_of([-4, 9])), [2, 3], 'functions');
numbers($matrix x [[1], [1], [1]], [[6], [15]], 'matrices');
numbers($matrix->matmul($matrix, transpose_b => 1), [[14, 32], [32, 77]], 'transposed');
numbers($matrix->sum(0), [5, 7, 9], 'sums of columns');
is($matrix->max->item, 6, 'the greatest of all');
numbers($matrix->argmax(1), [2, 2], 'where it is');
is($matrix->dot($matrix), 91, 'dot');
ok($matrix->close($matrix + 1e-7) && !$matrix->equal($matrix + 1), 'close, equal');

my $first = $matrix;
$first += 1;
is($matrix->get(0, 0), 1, 'a copy is changed in place, not what it was assigned from');
$matrix->row(1)->fill(0);
$matrix->slice(0, 1)->assign([7, 8, 9]);
numbers($matrix, [[7, 8, 9], [0, 0, 0]], 'rows are views');
$matrix->set(1, 2, -1);
numbers($matrix->reshape([3, -1])->take([2, 0]), [[0, -1], [7, 8]], 'reshaped, taken');
numbers($matrix->cast('i64'), [[7, 8, 9], [0, 0, -1]], 'cast');
is($class->copy_of([9007199254740993], 'i64')->get(0), 9007199254740993, 'integers are exact');
numbers($class->copy_of([1.5, 65520], 'f16'), [1.5, 9**9**9], 'halves');

my $sparse = $class->sparse([5, 2, 5], [[1, 2], [3, 4], [5, 6]], 8);
my ($ids, $held) = $sparse->parts;
numbers($ids,  [2, 5], 'ids');
numbers($held, [[3, 4], [6, 8]], 'repeated rows are summed');
numbers($class->ones([8, 2])->axpy(2, $sparse)->row(5), [13, 17], 'added into a dense one');

# Memory
my $tensor = $class->range(6)->reshape([2, 3]);
my $pdl    = $tensor->pdl;
is_deeply([$pdl->dims], [3, 2], "PDL's first dimension is the last");
$pdl->slice(':,(1)') .= 9;
numbers($tensor, [[0, 1, 2], [9, 9, 9]], 'a PDL upon the memory');
is($tensor->info->{sharers}, 2, 'which has a share in it');
my $part = $pdl->slice('0:1,:');
undef $tensor;
undef $pdl;
$class->full(6, -1) for 1 .. 20;
is($part->sum, 19, 'and keeps it');
undef $part;

my $own  = PDL->sequence(PDL::double(), 2, 2);
my $view = $class->view($own)->row(1);
undef $own;
$view += 1;
numbers($view, [3, 4], "a tensor upon a PDL's memory keeps it");
is($view->info->{is_lent}, 1, 'which is lent');
for (1 .. 1000) { my $passing = $class->view(PDL->zeroes(PDL::float(), 100)); $passing += 1 }
is(scalar(keys %Polyverso::CAPI::lent), 1, 'nothing is kept longer');
undef $view;
is(scalar(keys %Polyverso::CAPI::lent), 0, 'at all');
is(failure(name => sub { $class->copy_of([1], 'f16')->pdl }), 'MV_EDTYPE', 'PDL has no halves');

# As a table's data
my $node  = Polyverso->init;
my $table = $node->matrix(rows => 2, cols => 2);
$table->add($class->copy_of([[1, 2], [3, 4]]));
$table->add($class->ones([1, 2]), rows => $class->copy_of([1], 'i64'));
my $got = $class->zeros([2, 2]);
$table->get(out => $got);
numbers($got, [[1, 2], [4, 5]], 'into a table and out of it');
my $request = $table->get(out => $got->fill(0), async => 1);
$request->wait;
numbers($got, [[1, 2], [4, 5]], 'asynchronously too');
is(failure(name => sub { $table->add($class->zeros([3])) }), 'MV_ESHAPE', 'of the right size only');
$node->shutdown;

# A forked child keeps the tensors, copy-on-write: the parent does not see what the child writes.
{
    my ($small, $large) = map { $class->full([$_], 2) } 3, 1 << 20;
    my $pdl = $large->pdl;
    my $pid = fork // die "fork: $!";
    if (!$pid) {
        require POSIX;
        $pdl .= 7;
        $small *= 3;
        my $well = $large->sum->item == 7 << 20 && $small->sum->item == 18;
        $small->free;
        $class->full([3], 9);
        POSIX::_exit($well ? 0 : 1);
    }
    waitpid $pid, 0;
    is($?, 0, 'a forked child computes with its parent\'s tensors');
    is($large->sum->item, 2 << 20, 'which the parent does not see');
    is($small->sum->item, 6, 'and frees them');
}

# Errors
is(failure(name => sub { $matrix + [1, 2] }), 'MV_ESHAPE', 'shapes');
like(failure(text => sub { $matrix + [1, 2] }), qr/\(2, 3\) and \(2,\)/, 'named');
is(failure(name => sub { $class->zeros(3, 'i64') * 0.5 }), 'MV_EDTYPE', 'dtypes');
is(failure(name => sub { $class->zeros([-1]) }), 'MV_ESHAPE', 'lengths');
is(failure(name => sub { $class->zeros(1, 'f8') }), 'MV_EINVAL', 'names');
is(failure(name => sub { $class->copy_of([[1], [1, 2]]) }), 'MV_ESHAPE', 'ragged rows');
is(failure(name => sub { my $gone = $class->zeros(1); $gone->free; $gone->free; $gone->sum }), 'MV_EHANDLE', 'freed');

for my $wrong (undef, [1, 2], 3) {
    like(eval { Polyverso::Tensor->view($wrong); 1 } ? 'nothing' : $@->text, qr/view: a PDL is needed/, 'a view needs a PDL');
}
for my $wrong ([1, 'x'], [[1, 2], [3]], [1, undef], [1, {}], 'text', undef, {}) {
    like(eval { Polyverso::Tensor->copy_of($wrong); 1 } ? 'nothing' : $@->text, qr/copy_of: the (?:value|list)/, 'a copy needs numbers');
}
for my $wrong ([300, 'u8', '0 .. 255'], [-129, 'i8', '-128 .. 127'], [2**31, 'i32', '-2147483648 .. 2147483647'], [0.5, 'i64', ''], ['nan', 'i64', '']) {
    my ($value, $dtype, $range) = @$wrong;
    like(eval { Polyverso::Tensor->copy_of([1, $value], $dtype); 1 } ? 'nothing' : $@->text,
        qr/copy_of: the value at index 1 is "\Q$value\E", not an integer of \Q$range/i, "$value is no $dtype");
}

done_testing;
