package AI::MXNet::TestUtils;

# Helpers for tests of arrays: comparisons and random arrays.

use strict;
use warnings;

use AI::MXNet::Base ();
use AI::MXNet::NDArray;
use Exporter 'import';
use List::Util ();
use PDL;
use Scalar::Util qw(blessed);

our @EXPORT_OK = qw(same reldiff almost_equal allclose pdl_maximum pdl_minimum zip assert enumerate same_array dies_like
    dies_ok rand_shape_2d rand_shape_3d rand_shape_nd rand_sparse_ndarray random_arrays rand_ndarray randint pdl);

use constant default_numerical_threshold => 1e-6;

*zip       = \&AI::MXNet::Base::zip;
*enumerate = \&AI::MXNet::Base::enumerate;
*assert    = \&AI::MXNet::Base::assert;

# The arguments as PDLs, for calls as a method and as a function: mx->test_utils->same($x, $y), same($x, $y).
sub _two { shift if @_ && !ref $_[0] && $_[0] eq __PACKAGE__; return map { blessed $_ && $_->can('aspdl') ? $_->aspdl : $_ } @_ }

sub same     { my ($x, $y) = _two(@_); return ($x != $y)->sum == 0 }
sub allclose { my ($x, $y, $limit) = _two(@_); return (($x - $y)->abs <= ($limit // default_numerical_threshold))->all }

# The sum of the absolute differences, divided by the sum of both arrays' absolute values.
sub reldiff {
    my ($x, $y) = map { $_->double } _two(@_[0 .. $#_]);
    my $difference = ($x - $y)->abs->sum;
    return $difference == 0 ? 0 : $difference / ($x->abs->sum + $y->abs->sum);
}

sub almost_equal { my ($x, $y, $limit) = _two(@_); return reldiff($x, $y) <= ($limit // default_numerical_threshold) }

sub pdl_maximum { my ($x, $y) = _two(@_); return $x * ($x >= $y) + $y * ($x < $y) }
sub pdl_minimum { my ($x, $y) = _two(@_); return $x * ($x <= $y) + $y * ($x > $y) }

# Whether two arrays share their memory.
sub same_array {
    my ($x, $y) = grep { ref } @_;
    $x += 1;
    my $together = same($x, $y);
    $x -= 1;
    return $together && same($x, $y);
}

sub dies_like {
    my ($code, $pattern) = @_;
    return 0 if eval { $code->(); 1 };
    return 1 if "$@" =~ $pattern;
    warn $@;
    return 0;
}

sub dies_ok { my ($code) = @_; require Test::More; return Test::More::ok(!eval { $code->(); 1 }, 'dies') }

# ------------------------------------------------------------------ random arrays

sub randint { my ($low, $high) = @_; $low //= 0; return $low + int rand(($high // 10) - $low) }

sub rand_shape_nd { my ($dims, $most) = @_; return [map { randint(1, ($most // 10) + 1) } 1 .. $dims] }
sub rand_shape_2d { my @most = @_; return [map { randint(1, ($most[$_] // 10) + 1) } 0 .. 1] }
sub rand_shape_3d { my @most = @_; return [map { randint(1, ($most[$_] // 10) + 1) } 0 .. 2] }

sub random_arrays {
    my @pdls = map { random(reverse @$_)->float } @_;
    return @pdls > 1 ? @pdls : $pdls[0];
}

# Returns a random row-sparse array, its values and its indices.
sub rand_sparse_ndarray {
    my ($shape, $stype, %how) = @_;
    AI::MXNet::Base::refuse(EINVAL => "stype '$stype': row_sparse is needed") if $stype ne 'row_sparse';
    my $density = $how{density} // rand;
    my $indices = $how{rsp_indices} // which(random($shape->[0]) < $density);
    my $dtype   = $how{dtype} // 'float32';
    return (AI::MXNet::NDArray->zeros($shape, stype => 'row_sparse', dtype => $dtype), [pdl([]), pdl([])]) unless $indices->nelem;
    my $values = AI::MXNet::Base::pdl_as(random(reverse($indices->nelem, @$shape[1 .. $#$shape])), $dtype);
    $values .= $how{data_init} if defined $how{data_init};
    $values = $how{modifier_func}->($values) if $how{modifier_func};
    my $array = AI::MXNet::NDArray->sparse->row_sparse_array([$values, $indices], shape => $shape, dtype => $dtype);
    return ($array, [$values, $indices]);
}

sub rand_ndarray {
    my ($shape, $stype, $density, $dtype, $modifier) = @_;
    $dtype //= 'float32';
    return AI::MXNet::NDArray->array(random_arrays($shape), dtype => $dtype) if ($stype // 'default') eq 'default';
    return (rand_sparse_ndarray($shape, $stype, density => $density, dtype => $dtype, modifier_func => $modifier))[0];
}

1;

__END__

=encoding utf8

=head1 NAME

AI::MXNet::TestUtils - comparisons and random arrays for tests

=head1 SYNOPSIS

    use AI::MXNet qw(mx);
    use AI::MXNet::TestUtils qw(almost_equal same zip rand_ndarray randint);

    my $a = rand_ndarray([randint(1, 5), 3], 'default');
    print "close\n" if almost_equal($a->aspdl, $a->aspdl * (1 + 1e-8));
    zip(sub { my ($x, $y) = @_; print "equal\n" if same($x->aspdl, $y->aspdl) }, [$a], [$a->copy]);
    print mx->nd->ones([2])->aspdl, rand_ndarray([4, 2], 'row_sparse', 0.5)->indices->aspdl, "\n";

=head1 FUNCTIONS

=head2 same($x, $y), almost_equal($x, $y, $limit), allclose($x, $y, $limit), reldiff($x, $y)

They compare PDLs or arrays. C<reldiff> is the sum of the absolute differences, divided by the sum of both arrays'
absolute values. C<almost_equal> compares it with C<$limit>, by default 1e-6.

=head2 same_array($x, $y), dies_like($code, $pattern), dies_ok($code)

C<same_array> is whether two arrays share their memory. The other two are tests for Test::More: that the code dies,
with an error that matches the pattern or with any.

=head2 zip($code, @lists), enumerate($code, @lists), assert($true)

Those of L<AI::MXNet::Base>.

=head2 randint($low, $high), rand_shape_2d, rand_shape_3d, rand_shape_nd($dims), random_arrays(@shapes)

C<randint> returns a uniformly random integer from C<$low> to C<$high> - 1.

=head2 rand_ndarray($shape, $stype, $density, $dtype), rand_sparse_ndarray($shape, $stype, %how)

Random arrays; C<$density> is the share of rows that a sparse one stores. C<rand_sparse_ndarray> returns
the array and a reference to an array of its values and indices, as PDLs.

=head2 pdl_maximum($x, $y), pdl_minimum($x, $y)

The greater or smaller of each two elements of two PDLs.

=cut
