package AI::MXNet::Random;

# Random arrays. The n-th call after seed() gives the same numbers on every machine.

use strict;
use warnings;

use AI::MXNet::Base ();
use AI::MXNet::NDArray;
use AI::MXNet::NS;

my ($seed, $calls) = (0, 0);

sub seed {
    my ($class, $state) = @_;
    ($seed, $calls) = ($state, 0);
    return;
}

# A seed for each call, so that no two arrays begin with the same numbers.
sub _next { return ($seed * 1_000_003 + $calls++) % 2**52 }

my %OPTIONS = map { $_ => 1 } qw(shape ctx dtype out);

# Parses (first, second, shape) followed by options, or all of them by name, and draws the array.
sub _draw {
    my ($names, $defaults, $draw, @given) = @_;
    my %options;
    for my $name (@$names, 'shape') {
        last if !@given || ref $given[0] eq 'HASH' || !ref $given[0] && $given[0] !~ /\A[-+.0-9]/;
        $options{$name} = shift @given;
    }
    %options = (%options, AI::MXNet::NDArray::_options({ %OPTIONS, map { $_ => 1 } @$names }, @given));
    my @numbers = map { $options{ $names->[$_] } // $defaults->[$_] } 0 .. $#$names;
    my $shape = $options{shape} // ($options{out} ? $options{out}->shape : [1]);
    return AI::MXNet::NDArray->_create($shape, sub { $draw->($_[0], _next(), @numbers) },
        map { $_ => $options{$_} } qw(ctx dtype out));
}

sub uniform {
    my ($class, @given) = @_;
    return _draw([qw(low high)], [0, 1], \&Polyverso::CAPI::mv_tensor_uniform, @given);
}

sub normal {
    my ($class, @given) = @_;
    return _draw([qw(loc scale)], [0, 1], \&Polyverso::CAPI::mv_tensor_normal, @given);
}

sub randint {
    my ($class, @given) = @_;
    my $made = _draw([qw(low high)], [0, 2], sub { my ($t, $s, @range) = @_; Polyverso::CAPI::mv_tensor_uniform($t, $s, @range) },
        @given, (grep { (ref $_ eq 'HASH' ? exists $_->{dtype} : $_ eq 'dtype') } @given) ? () : (dtype => 'int32'));
    return $made;
}

1;

__END__

=encoding utf8

=head1 NAME

AI::MXNet::Random - random arrays

=head1 SYNOPSIS

    use AI::MXNet qw(mx);

    mx->random->seed(42);
    my $u = mx->random->uniform(-1, 1, [2, 3]);
    my $n = mx->nd->random->normal(0, 0.1, shape => [10], dtype => 'float64', ctx => mx->cpu(1));
    my $i = mx->random->randint(0, 10, shape => [5]);
    print $u->aspdl, $n->aspdl, $i->aspdl;

=head1 DESCRIPTION

The n-th array after C<seed> is the same on every machine, whatever the earlier arrays were. It differs from the one
that MXNet's generators would give. Without a call of C<seed> the seed is 0.

=head1 METHODS

=head2 seed($number)

Begins the sequence that belongs to the number, an integer.

=head2 uniform($low, $high, $shape, %options), normal($loc, $scale, $shape, %options), randint($low, $high, $shape, %options)

Arrays of the shape: numbers from C<$low> up to but not including C<$high>, normally distributed numbers with mean
C<$loc> and standard deviation C<$scale>, and integers. Arguments are given by position, by name, or in a hash. Options are C<shape>, C<ctx>, C<dtype>, C<out>.

=cut
