package Polyverso::Values;

# Numbers at the border: PDLs and array references in, PDLs or arrays out.

use strict;
use warnings;

use Polyverso::CAPI ();
use Polyverso::Error;

my %PACK = ($Polyverso::CAPI::MV_F32 => 'f*', $Polyverso::CAPI::MV_F64 => 'd*');
my %SIZE = ($Polyverso::CAPI::MV_F32 => 4,    $Polyverso::CAPI::MV_F64 => 8);

my $have_pdl;

# Whether PDL is installed; it is loaded when the first result wants to be one.
sub have_pdl {
    $have_pdl //= eval { local $@; local $SIG{__DIE__}; require PDL::Lite; 1 } ? 1 : 0;
    return $have_pdl;
}

sub is_pdl { return ref $_[0] && UNIVERSAL::isa($_[0], 'PDL') }

my %STATUS = (
    EINVAL => $Polyverso::CAPI::MV_EINVAL,
    ENOSYS => $Polyverso::CAPI::MV_ENOSYS,
    ESHAPE => $Polyverso::CAPI::MV_ESHAPE,
);

sub _refuse { my ($name, $text) = @_; Polyverso::Error->throw($STATUS{$name}, $text) }

my %pdl_type;

sub _pdl_type { return $pdl_type{ $_[0] } //= $_[0] == $Polyverso::CAPI::MV_F32 ? PDL::float() : PDL::double() }

sub _flatten {
    my ($list, $flat) = @_;
    for my $value (@$list) {
        if   (ref $value eq 'ARRAY') { _flatten($value, $flat) }
        else                         { push @$flat, $value }
    }
    return $flat;
}

# What a C function takes as data: a PDL of the table's type, or a packed string.
sub data {
    my ($values, $dtype) = @_;
    _refuse(ESHAPE => 'no data given') unless defined $values;
    if (is_pdl($values)) {
        my $type = _pdl_type($dtype);
        return $values->get_datatype == $type->enum ? $values : $values->convert($type);
    }
    return pack $PACK{$dtype}, @{ _flatten($values, []) } if ref $values eq 'ARRAY';
    return $values;
}

# Row ids: a PDL, an array reference, or one number.
sub rows {
    my ($rows) = @_;
    if (is_pdl($rows)) {
        my $ids = $rows->flat->longlong;
        _refuse(EINVAL => 'row ids are not integers') unless PDL::all($ids == $rows->flat);
        return $ids;
    }
    my @ids = ref $rows eq 'ARRAY' ? @$rows : ($rows);
    for my $id (@ids) {
        _refuse(EINVAL => 'row id "' . ($id // 'undef') . '" is not an integer')
            unless defined $id && $id =~ /\A-?[0-9]+\z/;
    }
    return pack 'q*', @ids;
}

# How many ids data() of rows() holds.
sub row_count { return is_pdl($_[0]) ? $_[0]->nelem : length($_[0]) / 8 }

# Fresh memory for a result: a PDL, or a string for result() to unpack.
sub room {
    my ($dtype, $matrix, $rows, $cols, $as) = @_;
    $as //= have_pdl() ? 'pdl' : 'array';
    if ($as eq 'pdl') {
        _refuse(ENOSYS => "as => 'pdl' needs PDL: apt install pdl, or cpan PDL") unless have_pdl();
        my $pdl = PDL->initialize;
        $pdl->set_datatype(_pdl_type($dtype)->enum);
        $pdl->setdims($matrix ? [$cols, $rows] : [$rows]);
        return $pdl;
    }
    _refuse(EINVAL => "as => '$as': 'pdl' or 'array' is needed") unless $as eq 'array';
    return "\0" x ($rows * $cols * $SIZE{$dtype});
}

# What the caller asked for, of room() that a call has filled.
sub result {
    my ($dtype, $matrix, $rows, $cols, $memory) = @_;
    return $memory if ref $memory;
    my @flat = unpack $PACK{$dtype}, $memory;
    return \@flat unless $matrix;
    return [map { [splice @flat, 0, $cols] } 1 .. $rows];
}

1;

__END__

=encoding utf8

=head1 NAME

Polyverso::Values - PDLs and arrays on their way into and out of Polyverso; internal

=cut
