package Polyverso::Values;

# Conversions of the bindings' arguments and results: PDLs and array references in, PDLs or arrays out.

use strict;
use warnings;

use Polyverso::CAPI ();
use Polyverso::Error;
use Scalar::Util ();

# For each dtype: pack's letter, size in bytes, PDL type of results, and range of an integer.
my %TYPE = (
    $Polyverso::CAPI::MV_F32  => { pack => 'f*', size => 4, pdl => 'float' },
    $Polyverso::CAPI::MV_F64  => { pack => 'd*', size => 8, pdl => 'double' },
    $Polyverso::CAPI::MV_I64  => { pack => 'q*', size => 8, pdl => 'longlong', range => [-2**63, 2**63 - 1] },
    $Polyverso::CAPI::MV_I32  => { pack => 'l*', size => 4, pdl => 'long',     range => [-2147483648, 2147483647] },
    $Polyverso::CAPI::MV_U8   => { pack => 'C*', size => 1, pdl => 'byte',     range => [0, 255] },
    $Polyverso::CAPI::MV_I8   => { pack => 'c*', size => 1, pdl => 'sbyte',    range => [-128, 127] },
    $Polyverso::CAPI::MV_F16  => { half => 1, size => 2, pdl => 'float' },
    $Polyverso::CAPI::MV_BF16 => { half => 1, size => 2, pdl => 'float' },
);

my %DTYPE = (
    f32  => $Polyverso::CAPI::MV_F32, float  => $Polyverso::CAPI::MV_F32, float32 => $Polyverso::CAPI::MV_F32,
    f64  => $Polyverso::CAPI::MV_F64, double => $Polyverso::CAPI::MV_F64, float64 => $Polyverso::CAPI::MV_F64,
    i64  => $Polyverso::CAPI::MV_I64, longlong => $Polyverso::CAPI::MV_I64, int64 => $Polyverso::CAPI::MV_I64,
    i32  => $Polyverso::CAPI::MV_I32, long   => $Polyverso::CAPI::MV_I32, int32   => $Polyverso::CAPI::MV_I32,
    u8   => $Polyverso::CAPI::MV_U8,  byte   => $Polyverso::CAPI::MV_U8,  uint8   => $Polyverso::CAPI::MV_U8,
    i8   => $Polyverso::CAPI::MV_I8,  sbyte  => $Polyverso::CAPI::MV_I8,  int8    => $Polyverso::CAPI::MV_I8,
    f16  => $Polyverso::CAPI::MV_F16,  float16  => $Polyverso::CAPI::MV_F16,
    bf16 => $Polyverso::CAPI::MV_BF16, bfloat16 => $Polyverso::CAPI::MV_BF16,
);

my $have_pdl;

# Whether PDL is installed. The first call loads it.
sub have_pdl {
    $have_pdl //= eval { local $@; local $SIG{__DIE__}; require PDL::Lite; 1 } ? 1 : 0;
    return $have_pdl;
}

sub is_pdl { return ref $_[0] && UNIVERSAL::isa($_[0], 'PDL') }

my %STATUS = (
    EDTYPE => $Polyverso::CAPI::MV_EDTYPE,
    EINVAL => $Polyverso::CAPI::MV_EINVAL,
    ENOSYS => $Polyverso::CAPI::MV_ENOSYS,
    ESHAPE => $Polyverso::CAPI::MV_ESHAPE,
);

sub _refuse { my ($name, $text) = @_; Polyverso::Error->throw($STATUS{$name}, $text) }

# The mv_dtype of a name.
sub dtype {
    my ($name) = @_;
    return $DTYPE{ $name // 'f32' }
        // _refuse(EDTYPE => qq{dtype "$name": one of f32, f64, i64, i32, u8, i8, f16, bf16 is needed});
}

sub _flatten {
    my ($list, $flat) = @_;
    for my $value (@$list) {
        if   (ref $value eq 'ARRAY') { _flatten($value, $flat) }
        else                         { push @$flat, $value }
    }
    return $flat;
}

# Converts data for a C function: to a PDL of the table's type, or a packed string.
sub data {
    my ($values, $dtype) = @_;
    _refuse(ESHAPE => 'no data given') unless defined $values;
    return _of_pdl($values, $dtype) if is_pdl($values);
    return $values unless ref $values eq 'ARRAY';
    my ($type, $flat) = ($TYPE{$dtype}, _flatten($values, []));
    return Polyverso::CAPI::pack_halves($dtype, pack 'd*', @$flat) if $type->{half};
    if (my $range = $type->{range}) {
        for my $value (@$flat) {
            _refuse(EDTYPE => 'value "' . ($value // 'undef') . qq{" is not an integer of $range->[0] .. $range->[1]})
                unless is_integer($value) && $value >= $range->[0] && $value <= $range->[1];
        }
    }
    return pack $type->{pack}, @$flat;
}

# Whether the value is a 64-bit integer, in any of Perl's representations: 2**62 and 1e15 are floats, and print
# differently.
sub is_integer {
    my ($value) = @_;
    return 0 unless defined $value && !ref $value;
    return length $value < 19 || sprintf('%d', $value) eq $value if $value =~ /\A-?[0-9]+\z/;
    return Scalar::Util::looks_like_number($value) && $value == int $value && abs $value < 2**63;
}

# Converts a PDL to the table's type. PDL has no 16-bit floats: ushort PDLs hold their bits, other types are converted.
# A value that is not exact as an integer is an error.
sub _of_pdl {
    my ($values, $dtype) = @_;
    my $type = $TYPE{$dtype};
    if ($type->{half}) {
        return ${ $values->copy->get_dataref } if $values->type eq 'ushort';
        return Polyverso::CAPI::pack_halves($dtype, ${ $values->double->copy->get_dataref });
    }
    my $wanted = PDL->can($type->{pdl})->();
    return $values if $values->get_datatype == $wanted->enum;
    my $converted = $values->convert($wanted);
    _refuse(EDTYPE => "the table holds $type->{pdl}, and not all of the data fits: round or cast it yourself")
        if $type->{range} && !PDL::all($converted == $values);
    return $converted;
}

# Row ids or keys: a PDL, an array reference, or one number.
sub rows {
    my ($rows) = @_;
    return $rows if UNIVERSAL::isa($rows, 'Polyverso::Tensor');
    if (is_pdl($rows)) {
        return $rows if $rows->type eq 'longlong' || $rows->type eq 'indx';
        my $ids = $rows->flat->longlong;
        _refuse(EINVAL => 'row ids are not integers') unless PDL::all($ids == $rows->flat);
        return $ids;
    }
    my @ids = ref $rows eq 'ARRAY' ? @$rows : ($rows);
    for my $id (@ids) {
        _refuse(EINVAL => 'row id "' . ($id // 'undef') . '" is not a 64-bit integer') unless is_integer($id);
    }
    return pack 'q*', @ids;
}

# The number of ids that rows() has returned.
sub row_count {
    my ($ids) = @_;
    return is_pdl($ids) ? $ids->nelem : ref $ids ? $ids->count : length($ids) / 8;
}

# The form of a result, 'pdl' or 'array'. By default 'pdl' if PDL is installed.
sub look {
    my ($as) = @_;
    return ($have_pdl // have_pdl()) ? 'pdl' : 'array' unless defined $as;
    _refuse(EINVAL => "as => '$as': 'pdl' or 'array' is needed") unless $as eq 'pdl' || $as eq 'array';
    _refuse(ENOSYS => "as => 'pdl' needs PDL: apt install pdl, or cpan PDL") if $as eq 'pdl' && !have_pdl();
    return $as;
}

# The length in bytes of a packed string of `count` numbers.
sub bytes { my ($dtype, $count) = @_; return $count * $TYPE{$dtype}{size} }

*fresh = \&Polyverso::CAPI::fresh_pdl;

# Fresh memory for a result: a PDL, or a string for result() to unpack.
sub room {
    my ($dtype, $flat, $rows, $cols, $as) = @_;
    return fresh($dtype, $rows, $flat ? 0 : $cols) if $as eq 'pdl' && !$TYPE{$dtype}{half};
    return "\0" x bytes($dtype, $rows * $cols);
}

# Converts the memory of room(), which a call has filled, to the form that the caller asked for.
sub result {
    my ($dtype, $flat, $rows, $cols, $as, $memory) = @_;
    return $memory if ref $memory;
    my $type = $TYPE{$dtype};
    $memory = Polyverso::CAPI::unpack_halves($dtype, $memory) if $type->{half};
    return _pdl_of($type->{half} ? $Polyverso::CAPI::MV_F32 : $dtype, $flat, $rows, $cols, $memory) if $as eq 'pdl';
    my @flat = unpack $type->{pack} // 'f*', $memory;
    return \@flat if $flat;
    return [map { [splice @flat, 0, $cols] } 1 .. $rows];
}

sub _pdl_of {
    my ($dtype, $flat, $rows, $cols, $bytes) = @_;
    my $pdl = fresh($dtype, $rows, $flat ? 0 : $cols);
    ${ $pdl->get_dataref } = $bytes;
    $pdl->upd_data;
    return $pdl;
}

# Packed row ids, as a result.
sub ids {
    my ($count, $as, $packed) = @_;
    return result($Polyverso::CAPI::MV_I64, 1, $count, 1, $as, $packed);
}

1;

__END__

=encoding utf8

=head1 NAME

Polyverso::Values - conversion of PDLs and arrays to and from the library's data; internal

=cut
