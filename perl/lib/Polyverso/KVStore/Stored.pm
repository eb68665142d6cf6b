package Polyverso::KVStore::Stored;

# A stored value, as an updater gets it. `+=` changes it in place: `=` does not copy it first, although the updater
# holds a second reference. It notices changes, so that a value that the updater returns is used only where the updater
# has not changed the stored one: in Perl, the value of the last statement is returned too.

use strict;
use warnings;

use Polyverso::Error;
use Polyverso::Lists ();
use Polyverso::Tensor;
use Polyverso::Values;

our @ISA = ('Polyverso::Tensor');
use overload '=' => sub { $_[0] };

my ($current, $is_changed, $before);    # of the running updater: the stored tensor, and a copy if its memory was lent

# What is made from a stored value is a tensor like any other.
sub _new { my ($class, $handle) = @_; return bless \$handle, ref $class ? 'Polyverso::Tensor' : $class }

sub _changes { my ($self) = @_; $is_changed = 1 if $$self == $current; return $self }
sub _lends   { my ($self) = @_; $before //= $self->copy if $$self == $current; return $self }

sub _binary {
    my ($self, @rest) = @_;
    $self->_changes if $rest[3];
    return $self->SUPER::_binary(@rest);
}

sub assign  { my ($self, @rest) = @_; return $self->_changes->SUPER::assign(@rest) }
sub fill    { my ($self, @rest) = @_; return $self->_changes->SUPER::fill(@rest) }
sub axpy    { my ($self, @rest) = @_; return $self->_changes->SUPER::axpy(@rest) }
sub set     { my ($self, @rest) = @_; return $self->_changes->SUPER::set(@rest) }
sub pdl     { my ($self, @rest) = @_; return $self->_lends->SUPER::pdl(@rest) }
sub row     { my ($self, @rest) = @_; return $self->_lends->SUPER::row(@rest) }
sub slice   { my ($self, @rest) = @_; return $self->_lends->SUPER::slice(@rest) }
sub reshape { my ($self, @rest) = @_; return $self->_lends->SUPER::reshape(@rest) }
sub parts   { my ($self, @rest) = @_; return $self->_lends->SUPER::parts(@rest) }

# Calls an updater. A tensor, a PDL or a list of numbers that it returns replaces the stored value, unless the updater has
# changed that in place.
sub update {
    my ($updater, $key, $merged, $stored) = @_;
    ($current, $is_changed, $before) = ($$stored, 0, undef);
    my $result = $updater->($key, $merged, $stored);
    if (!Polyverso::Values::is_pdl($result) && !UNIVERSAL::isa($result, 'Polyverso::Tensor') && ref $result ne 'ARRAY') {
        _refuse($key, $result, $stored) if defined $result && length $result && !$is_changed && !$before;
        return;
    }
    return if $is_changed || ($before && !$stored->equal($before)) || _is_within($result, $stored);
    _replace($key, $result, $stored);
    return;
}

# Silently keeping the stored value would hide that the updater does nothing. A number has no shape. The empty text is
# what a condition of Perl's returns that is false.
sub _refuse {
    my ($key, $result, $stored) = @_;
    my $shape = join ', ', @{ $stored->shape };
    Polyverso::Error->throw($Polyverso::CAPI::MV_EINVAL, qq{key "$key": the updater returned } . Polyverso::Lists::shown($result) . qq{ and did not change the stored value: }
            . "return a tensor, a PDL or a list of shape ($shape), or end it with \"return;\" to keep the value");
}

sub _is_within {
    my ($result, $stored) = @_;
    return UNIVERSAL::isa($result, 'Polyverso::Tensor') && $result->info->{storage} == $stored->info->{storage};
}

sub _replace {
    my ($key, $result, $stored) = @_;
    $result = Polyverso::Tensor->copy_of($result, $stored->dtype) if ref $result eq 'ARRAY';
    my ($given, $needed) = map { '(' . join(', ', @$_) . ')' }
        Polyverso::Values::is_pdl($result) ? [reverse $result->dims] : $result->shape, $stored->shape;
    Polyverso::Error->throw($Polyverso::CAPI::MV_ESHAPE, qq{key "$key" holds shape $needed, the updater returned $given})
        if $given ne $needed;
    my $value = Polyverso::Tensor->copy_of($result, $stored->dtype);
    $value = $value->to_sparse if $stored->row_sparse && !$value->row_sparse;
    $stored->SUPER::assign($value);
    return;
}

1;

__END__

=encoding utf8

=head1 NAME

Polyverso::KVStore::Stored - a stored value, as an updater gets it; internal

=cut
