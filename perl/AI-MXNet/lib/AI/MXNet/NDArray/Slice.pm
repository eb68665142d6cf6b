package AI::MXNet::NDArray::Slice;

# A box within an array. Reading it copies it; .= and the other assignment operators write into the array.

use Mouse;

use AI::MXNet::Base ();
use Scalar::Util qw(blessed);

has parent => (is => 'ro', required => 1);
has begin  => (is => 'ro', required => 1);
has end    => (is => 'ro', required => 1);    # exclusive

sub _read { my ($code) = @_; return sub { $code->($_[2] ? ($_[1], $_[0]->sever) : ($_[0]->sever, $_[1])) } }
sub _write { my ($code) = @_; return sub { my ($self, $other) = @_; $self->set($code->($self->sever, $other)); $self } }

use overload
    '.='  => \&set,
    '='   => sub { $_[0] },
    'bool' => sub { 1 },
    '""'  => sub { $_[0]->sever . '' },
    '@{}' => sub { [@{ $_[0]->sever }] },
    '+'   => _read(sub  { $_[0] + $_[1] }),
    '-'   => _read(sub  { $_[0] - $_[1] }),
    '*'   => _read(sub  { $_[0] * $_[1] }),
    '/'   => _read(sub  { $_[0] / $_[1] }),
    '%'   => _read(sub  { $_[0] % $_[1] }),
    '**'  => _read(sub  { $_[0]**$_[1] }),
    '=='  => _read(sub  { $_[0] == $_[1] }),
    '!='  => _read(sub  { $_[0] != $_[1] }),
    '<'   => _read(sub  { $_[0] < $_[1] }),
    '<='  => _read(sub  { $_[0] <= $_[1] }),
    '>'   => _read(sub  { $_[0] > $_[1] }),
    '>='  => _read(sub  { $_[0] >= $_[1] }),
    'neg' => sub { -$_[0]->sever },
    '+='  => _write(sub { $_[0] + $_[1] }),
    '-='  => _write(sub { $_[0] - $_[1] }),
    '*='  => _write(sub { $_[0] * $_[1] }),
    '/='  => _write(sub { $_[0] / $_[1] }),
    '**=' => _write(sub { $_[0]**$_[1] }),
    '%='  => _write(sub { $_[0] % $_[1] });

sub shape {
    my ($self) = @_;
    return [map { $self->end->[$_] - $self->begin->[$_] } 0 .. $#{ $self->begin }];
}

# The box as a slice of a PDL of the whole array.
sub _box {
    my ($self, $pdl) = @_;
    return $pdl->slice(map { [$self->begin->[$_], $self->end->[$_] - 1] } reverse 0 .. $#{ $self->begin });
}

sub sever {
    my ($self) = @_;
    my $parent = $self->parent;
    return $parent->array($self->_box($parent->_any_pdl), ctx => $parent->context, dtype => $parent->dtype);
}
*copy = \&sever;

sub set {
    my ($self, $value) = @_;
    my $parent = $self->parent;
    AI::MXNet::Base::refuse(ESTATE => "$parent is not writable") unless $parent->writable;
    if (ref $value) {
        $value = $value->sever if blessed $value && $value->isa(__PACKAGE__);
        $value = $parent->array($value, dtype => $parent->dtype) unless blessed $value && $value->isa('AI::MXNet::NDArray');
        my ($here, $there) = map { join 'x', @{ $_->shape } } $self, $value;
        AI::MXNet::Base::refuse(ESHAPE => "a slice $here of $parent can't be set to an array $there") if $here ne $there;
        $value = $value->_any_pdl;
    }
    $parent->_change_pdl(sub { my $box = $self->_box($_[0]); $box .= $value });
    return $self;
}

our $AUTOLOAD;

# All other methods are called on a copy.
sub AUTOLOAD {
    my ($self, @arguments) = @_;
    my $name = $AUTOLOAD =~ s/.*:://r;
    return if $name eq 'DESTROY';
    return $self->sever->$name(@arguments);
}

1;

__END__

=encoding utf8

=head1 NAME

AI::MXNet::NDArray::Slice - a box within an array

=head1 SYNOPSIS

    use AI::MXNet qw(mx);

    my $a = mx->nd->zeros([2, 3]);
    $a->slice([0, 1], [1, 2]) .= 7;            # rows 0 to 1, columns 1 to 2
    $a->slice('X', 0) += 1;
    print $a->aspdl;                           # [[1 7 7] [1 7 7]]
    print $a->slice(1, 2)->asscalar, "\n";     # 7

=head1 DESCRIPTION

The result of an array's C<slice> for more than its first dimension. Reading it makes a copy; C<.=>, C<+=> and the other
assignment operators write into the array.

=head1 METHODS

=head2 sever, copy, set($value), shape, parent, begin, end

All other methods of L<AI::MXNet::NDArray> work on a copy.

=cut
