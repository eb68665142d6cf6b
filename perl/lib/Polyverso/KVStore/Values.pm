package Polyverso::KVStore::Values;

# The values of a store's calls: PDLs, numbers and lists of numbers as tensors, and results back into PDLs.

use strict;
use warnings;

use Polyverso::CAPI ();
use Polyverso::Error;
use Polyverso::Lists ();
use Polyverso::Tensor;
use Polyverso::Values;
use Scalar::Util ();

sub _refuse { my ($status, $text) = @_; Polyverso::Error->throw($status, $text) }

sub is_tensor { my ($value) = @_; return ref $value eq 'Polyverso::Tensor' || UNIVERSAL::isa($value, 'Polyverso::Tensor') }

# Whether only tensors are given, or lists of them, possibly by a list for each key.
sub are_tensors {
    my ($values) = @_;
    return is_tensor($values) unless ref $values eq 'ARRAY';
    return !grep { ref ne 'Polyverso::Tensor' && !(ref eq 'ARRAY' ? @$_ && are_tensors($_) : is_tensor($_)) } @$values;
}

# Whether a list holds numbers, at any depth, and not arrays of several devices.
sub _is_numeric {
    my ($list) = @_;
    $list = $list->[0] while ref $list eq 'ARRAY' && @$list;
    return !ref $list || !Scalar::Util::blessed($list) || !(Polyverso::Values::is_pdl($list) || is_tensor($list));
}

# One device's value as a tensor, of the key's dtype, if the key is known: [dtype, shape]. A packed string has these too,
# and so has a list without dimensions of its own.
sub _tensor {
    my ($value, $known, $what) = @_;
    return $value if is_tensor($value);
    my ($dtype, $shape) = $known ? @$known : ();
    return Polyverso::Tensor->_of_packed($value, $shape, $dtype) if $known && defined $value && !ref $value && _has_length($value, @$known);
    _refuse($Polyverso::CAPI::MV_EINVAL,
        "$what: a tensor, a PDL, an array reference or a packed string of the key's size is needed, not " . Polyverso::Lists::shown($value))
        unless Polyverso::Values::is_pdl($value) || ref $value eq 'ARRAY' || Polyverso::Lists::is_number($value);
    Polyverso::Values::check_pdls($value);
    my $tensor = Polyverso::Tensor->copy_of($value, Polyverso::Values::is_pdl($value) ? undef : $dtype);
    $tensor = $tensor->cast($dtype) if defined $dtype && $tensor->dtype ne $dtype;
    return $known && ref $value eq 'ARRAY' && $tensor->dims == 1 && $tensor->count == _count(@$shape) ? $tensor->reshape($shape) : $tensor;
}

sub _count { my $count = 1; $count *= $_ for @_; return $count }

sub _has_length {
    my ($bytes, $dtype, $shape) = @_;
    return length $bytes == Polyverso::Values::bytes(Polyverso::Values::dtype($dtype), _count(@$shape));
}

# What one key is given: a value, or a list with one for each device.
sub _of_key {
    my ($value, $known, $what) = @_;
    return _tensor($value, $known, $what) if ref $value ne 'ARRAY' || _is_numeric($value);
    return [map { _tensor($_, $known, $what) } @$value];
}

# For each of a call's values the tensors of its key. $make makes them: $make->(value, key).
sub _for_keys {
    my ($keys, $values, $make) = @_;
    return $make->($values, $keys) unless ref $keys eq 'ARRAY';
    return $values unless ref $values eq 'ARRAY' && @$keys && @$values;
    # Without a list for each key, each key has equally many of the values.
    return [map { $make->($values->[$_], $keys->[$_ * @$keys / @$values]) } 0 .. $#$values];
}

# The values to be sent as tensors. $keys_known has [dtype, shape] of each known key.
sub to_send {
    my ($what, $keys, $values, $keys_known) = @_;
    _refuse($Polyverso::CAPI::MV_EINVAL, "$what: no values given") unless defined $values;
    return $values if are_tensors($values);
    return _for_keys($keys, $values, sub { my ($value, $key) = @_; _of_key($value, $keys_known->{ $key // '' }, $what) });
}

sub _place {
    my ($pdl, $dtype, $pairs, $what) = @_;
    return $pdl if is_tensor($pdl);
    _refuse($Polyverso::CAPI::MV_EINVAL, "$what: results need a tensor or a PDL, not " . Polyverso::Lists::shown($pdl))
        unless Polyverso::Values::is_pdl($pdl);
    my $tensor = defined $dtype ? Polyverso::Tensor->zeros([reverse $pdl->dims], $dtype) : Polyverso::Tensor->copy_of($pdl);
    push @$pairs, [$pdl, $tensor];
    return $tensor;
}

# Tensors for results, and a function that then moves these into PDLs; undef where none was given.
sub to_fill {
    my ($what, $keys, $out, $keys_known) = @_;
    _refuse($Polyverso::CAPI::MV_EINVAL, "$what: nothing given for the results") unless defined $out;
    return ($out, undef) if are_tensors($out);
    my @pairs;
    my $tensors = _for_keys($keys, $out, sub {
        my ($places, $key) = @_;
        my ($dtype) = @{ $keys_known->{ $key // '' } // [] };
        return ref $places eq 'ARRAY' ? [map { _place($_, $dtype, \@pairs, $what) } @$places] : _place($places, $dtype, \@pairs, $what);
    });
    return ($tensors, sub { _fill(@$_) for @pairs });
}

sub _fill {
    my ($pdl, $tensor) = @_;
    $tensor = $tensor->cast('f32') if $tensor->dtype =~ /16/;    # PDL has no such floats
    $pdl .= $tensor->pdl;
    return;
}

# Remembers the dtypes and shapes of new keys.
sub remember {
    my ($keys, $values, $keys_known) = @_;
    _for_keys($keys, $values, sub {
        my ($value, $key) = @_;
        $value = $value->[0] while ref $value eq 'ARRAY';
        $keys_known->{$key} //= [$value->dtype, $value->shape] if is_tensor($value);
    });
    return;
}

1;

__END__

=encoding utf8

=head1 NAME

Polyverso::KVStore::Values - conversion of a store's values; internal

=cut
