# Shapes and numbers of the data of tables: what does not fit is refused, with its place.

use strict;
use warnings;

use Test::More;
use FindBin;
use lib "$FindBin::Bin/lib";
use TestCluster ();

use Polyverso;

my $have_pdl = eval { require PDL::Lite; 1 };

my $node = Polyverso->init(log_level => 'error');
my $m    = $node->matrix(rows => 3, cols => 2, name => 'weights');
my $a    = $node->array(size => 6, name => 'flat');
my $zero = [[0, 0], [0, 0], [0, 0]];

sub failure { my ($code) = @_; return eval { $code->(); 1 } ? 'nothing' : ref $@ ? $@->name . ': ' . $@->text : $@ }

sub refused {
    my ($pattern, $code, $name) = @_;
    like(failure($code), $pattern, $name);
    is_deeply($m->get(as => 'array'), $zero, '... and nothing is changed');
}

subtest 'shapes' => sub {
    my $needed = qr/\AMV_ESHAPE: table "weights": shape \(2, 3\) given, \(3, 2\) needed, or 6 values in one dimension/;
    refused($needed, sub { $m->add([[1, 2, 3], [4, 5, 6]]) }, 'add');
    refused($needed, sub { $m->set([[1, 2, 3], [4, 5, 6]]) }, 'set');
    refused(qr/shape \(4, 1\) given, \(2, 2\)/, sub { $m->add([[1], [2], [3], [4]], rows => [0, 1]) }, 'rows');
    like(failure(sub { $node->matrix(rows => 3, cols => 2, init => [[1, 2, 3], [4, 5, 6]]) }), qr/ESHAPE.*init.*\(3, 2\) needed/, 'init');
    like(failure(sub { $node->array(size => 3, init => [1, 2]) }), qr/ESHAPE.*2 values given, 3 needed/, 'init of an array');
    refused(qr/2 values given, 3 rows x 2 columns need 6/, sub { $m->add([1, 2]) }, 'too few');
    refused(qr/4 values given, 3 rows/, sub { $m->add(pack 'f*', 1 .. 4) }, 'packed values are counted, not bytes');
    refused(qr/a string of 5 bytes given/, sub { $m->add('abcde') }, 'text');
    refused(qr/the number 3 given/, sub { $m->add(3) }, 'a number');
    refused(qr/MV_EDTYPE.*a reference to hash/, sub { $m->add({ a => 1 }) }, 'a hash');
    refused(qr/shape \(1, 3, 2\) given, \(3, 2\) needed/, sub { $m->add([[[1, 2], [3, 4], [5, 6]]]) }, 'rows in a further list');
    refused(qr/shape \(3, 1, 3\) given/, sub { $m->add([map { [[1, 2, 3]] } 1 .. 3]) }, 'too many columns');
    $m->add([1 .. 6]);
    $m->add([[[1, 2]], [[3, 4]], [[5, 6]]]);    # further dimensions divide the columns
    $m->add(pack 'f*', map { -2 * $_ } 1 .. 6);
    is_deeply($m->get(as => 'array'), $zero, 'one dimension fits, so do further ones');
    $a->add([[1, 2, 3], [4, 5, 6]]);
    is_deeply($a->get(as => 'array'), [1 .. 6], 'everything fits one dimension');
};

subtest 'ragged lists' => sub {
    for my $list ([[1, 2], [3], [4, 5, 6]], [[1, 2], 3, 4, 5, 6], [1, [2, 3], 4, 5, 6], [[1, 2], [[3], [4]], [5, 6]], [[], [1, 2], [3, 4, 5, 6]]) {
        refused(qr/MV_ESHAPE: table "weights": the list/, sub { $m->add($list) }, 'a matrix');
        like(failure(sub { $a->set($list) }), qr/MV_ESHAPE: table "flat": the list/, 'an array');
    }
    refused(qr/the list at index 2 has 3 values, others at this level have 2/, sub { $m->add([[1, 2], [3, 0], [4, 5, 6]]) }, 'where');
};

subtest 'no numbers' => sub {
    for my $case (
        [[1, 'a', 3, 4, 5, 6],            qr/MV_EDTYPE: table "weights": the value at index 1 is "a", not a number/],
        [[[1, 2], [3, undef], [5, 6]],    qr/at index \[1\]\[1\] is undef/],
        [[[1, 2], [3, 4], [{}, 6]],       qr/at index \[2\]\[0\] is a reference to hash/],
        [[1, 2, 3, 4, 5, ''],             qr/at index 5 is ""/],
        [['3 apples', 2 .. 6],            qr/at index 0 is "3 apples"/],
        [['0x10', 2 .. 6],                qr/at index 0 is "0x10"/],
    ) {
        refused($case->[1], sub { $m->add($case->[0]) }, 'is refused');
    }
    my @warnings;
    local $SIG{__WARN__} = sub { push @warnings, @_ };
    $m->set(['3.5', ' 2', '1e1', '-0.25', '0', 1]);
    is_deeply($m->get(as => 'array'), [[3.5, 2], [10, -0.25], [0, 1]], 'texts of numbers are numbers');
    $m->set([(0) x 6]);
    is_deeply(\@warnings, [], 'and no warning is given');
    my $line = __LINE__ + 1;
    eval { $m->add(['x', 2 .. 6]) };
    is($@->{line}, $line, 'the line is the caller\'s');
};

subtest 'integers' => sub {
    my $i = $node->array(size => 2, dtype => 'i64', name => 'i');
    my $u = $node->array(size => 2, dtype => 'u8',  name => 'u');
    like(failure(sub { $i->add([1, 2**70]) }), qr/index 1 is .* not an integer of -9223372036854775808 \.\. 9223372036854775807/, 'the exact range');
    for my $wrong ([1, 2.5], [1, 'x'], [undef, 1], [1, []], [1, {}]) {
        isnt(failure(sub { $i->add($wrong) }), 'nothing', 'refused');
    }
    like(failure(sub { $u->add([-1, 0]) }), qr/index 0 is "-1", not an integer of 0 \.\. 255/, 'a small range');
    $i->set(['9223372036854775807', -9223372036854775807]);
    is_deeply($i->get(as => 'array'), [9223372036854775807, -9223372036854775807], 'no digit is lost');
    require Math::BigInt;
    $i->set([Math::BigInt->new(5), 1e3]);
    is_deeply($i->get(as => 'array'), [5, 1000], 'objects that are numbers');
};

SKIP: {
    skip 'PDL is not installed', 1 unless $have_pdl;
    subtest 'PDLs' => sub {
        my $sideways = qr/MV_ESHAPE: table "weights": a PDL of dims \(3, 2\) given, \(2, 3\) needed for 3 rows x 2 columns/;
        refused($sideways, sub { $m->add(PDL->ones(3, 2)) }, 'transposed');
        refused($sideways, sub { $m->add(PDL->ones(2, 3)->transpose) }, 'by PDL');
        refused(qr/\(1, 4\) given, \(2, 2\) needed/, sub { $m->set(PDL->ones(1, 4), rows => [0, 2]) }, 'rows');
        refused(qr/out: a PDL of dims \(3, 2\)/, sub { $m->get(out => PDL->zeroes(PDL::float(), 3, 2)) }, 'out');
        refused(qr/out must be a PDL/, sub { $m->get(out => []) }, 'out is no list');
        refused(qr/shape \(2, 3\) given/, sub { require Polyverso::Tensor; $m->add(Polyverso::Tensor->ones([2, 3])) }, 'a tensor');
        like(failure(sub { $node->matrix(rows => 3, cols => 2, init => PDL->ones(3, 2)) }), qr/ESHAPE.*dims \(3, 2\)/, 'init');
        $m->set(PDL->sequence(2, 3));
        is_deeply($m->get(as => 'array'), [[0, 1], [2, 3], [4, 5]], 'columns come first');
        $m->set(PDL->sequence(6));
        like(failure(sub { $m->set(PDL->sequence(2, 3, 1)) }), qr/a PDL of dims \(2, 3, 1\) given, \(2, 3\) needed/, 'a further dimension of rows');
        $m->set(PDL->sequence(2, 1, 3));
        $m->set([map { $m->get->slice(":,($_)") } 0 .. 2]);
        is_deeply($m->get(as => 'array'), [[0, 1], [2, 3], [4, 5]], 'one dimension, further ones, and a list of PDLs');
        $a->set(PDL->sequence(2, 3));
        is_deeply($a->get(as => 'array'), [0 .. 5], 'everything fits one dimension');
    };
}

$node->shutdown;

done_testing;
