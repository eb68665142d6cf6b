package Polyverso::Values;

# Conversions of the bindings' arguments and results: PDLs and array references in, PDLs or arrays out.

use strict;
use warnings;

use Polyverso::CAPI ();
use Polyverso::Error;
use Polyverso::Lists ();
use Polyverso::Names ();
use List::Util ();
use Scalar::Util ();
use overload ();

# For each dtype: pack's letter, size in bytes, PDL type of results, and range of an integer.
my %TYPE = (
    $Polyverso::CAPI::MV_F32  => { pack => 'f*', size => 4, pdl => 'float' },
    $Polyverso::CAPI::MV_F64  => { pack => 'd*', size => 8, pdl => 'double' },
    $Polyverso::CAPI::MV_I64  => { pack => 'q*', size => 8, pdl => 'longlong', range => [-(~0 >> 1) - 1, ~0 >> 1],
        text => '-9223372036854775808 .. 9223372036854775807' },
    $Polyverso::CAPI::MV_I32  => { pack => 'l*', size => 4, pdl => 'long',     range => [-2147483648, 2147483647],
        text => '-2147483648 .. 2147483647' },
    $Polyverso::CAPI::MV_U8   => { pack => 'C*', size => 1, pdl => 'byte',     range => [0, 255], text => '0 .. 255' },
    $Polyverso::CAPI::MV_I8   => { pack => 'c*', size => 1, pdl => 'sbyte',    range => [-128, 127], text => '-128 .. 127' },
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

# Named arguments of the method that the program has called. Perl would only warn of a name without a value.
sub pairs {
    my (@named) = @_;
    return @named if @named % 2 == 0;
    return named(Polyverso::Names::method() // 'this call', @named);
}

# Named arguments of this function.
sub named {
    my ($function, @named) = @_;
    return @named if @named % 2 == 0;
    _refuse(EINVAL => "$function: options are name => value pairs, and " . Polyverso::Lists::shown($named[-1]) . ' has no value');
}

# Refuses an option that the called method does not have: add($data, row => 3) would otherwise add to every row.
sub check_options {
    my ($how, $known) = @_;
    for (keys %$how) { return _refuse_options($how, $known) unless $known->{$_} }
    return;
}

sub _refuse_options {
    my ($how, $known) = @_;
    my ($name) = sort grep { !$known->{$_} } keys %$how;
    Polyverso::Error->_refuse($Polyverso::CAPI::MV_EINVAL, qq{unknown option "$name"; known: @{[sort keys %$known]}});
}

# The options of a call, checked against the names of those that its method has.
sub options {
    my ($known, @named) = @_;
    my %how = pairs(@named);
    check_options(\%how, { map { $_ => 1 } @$known });
    return \%how;
}

# A value that must be an integer, or a number; $what names it in the error.
sub integer {
    my ($what, $value) = @_;
    return $value if is_integer($value);
    Polyverso::Error->_refuse($Polyverso::CAPI::MV_EINVAL, "$what is " . Polyverso::Lists::shown($value) . ', not an integer');
}

sub number {
    my ($what, $value) = @_;
    return $value if defined $value && Polyverso::Lists::is_number($value);
    if (is_pdl($value) && $value->nelem == 1) {    # as of ($d ** 2)->avg
        check_bad($value);
        return $value->sclr;
    }
    Polyverso::Error->_refuse($Polyverso::CAPI::MV_EINVAL, "$what is " . Polyverso::Lists::shown($value) . ', not a number');
}

# Whether a value can be called.
sub is_code { my ($value) = @_; return ref $value eq 'CODE' || (Scalar::Util::blessed($value) && overload::Method($value, '&{}')) }

# Refuses PDLs with bad values: their numbers are arbitrary.
sub check_bad {
    for my $array (@_) {
        next unless is_pdl($array) && $array->badflag && $array->nbad;
        Polyverso::Error->_refuse($Polyverso::CAPI::MV_EDTYPE,
            'a PDL has ' . $array->nbad . ' bad values: replace them, as by $pdl->setbadtoval(0)');
    }
    return;
}

# Refuses PDLs of ushort where they would be taken for the bits of bf16, because they may be integers, and bad values.
sub check_pdls {
    check_bad(@_);
    for my $array (@_) {
        next unless is_pdl($array) && $array->type eq 'ushort';
        Polyverso::Error->_refuse($Polyverso::CAPI::MV_EDTYPE,
            'a PDL of ushort is not supported here: $pdl->long has its integers, Polyverso::Tensor->view($pdl) takes it for the bits of bf16');
    }
    return;
}

# A number as text from which the same number is read: Perl's own text has 15 digits, which is too few for 1/3.
sub exact {
    my ($value) = @_;
    return Scalar::Util::looks_like_number($value) && "$value" != $value ? sprintf('%.17g', $value) : $value;
}

# A name with its parameters as text: ('mx.sgd', learning_rate => 0.5) is 'mx.sgd learning_rate=0.5'.
sub with_parameters {
    my ($what, $name, @parameters) = @_;
    my %parameters = named($what, @parameters);
    for my $parameter (sort keys %parameters) {
        my $value = $parameters{$parameter};
        next if defined $value && !ref $value && $value =~ /\A\S+\z/;
        _refuse(EINVAL => "$what: $parameter is " . Polyverso::Lists::shown($value) . ', not a number or a word');
    }
    return $name unless %parameters;
    return join ' ', $name, map { "$_=" . exact($parameters{$_}) } sort keys %parameters;
}

# The mv_dtype of a name.
sub dtype {
    my ($name) = @_;
    return $DTYPE{ $name // 'f32' }
        // _refuse(EDTYPE => qq{dtype "$name": one of f32, f64, i64, i32, u8, i8, f16, bf16 is needed});
}

my %NAME = map { $DTYPE{$_} => $_ } qw(f32 f64 i64 i32 u8 i8 f16 bf16);
sub dtype_name { my ($dtype) = @_; return $NAME{$dtype} }

# Refuses data of the wrong shape for a table of $rows rows with $cols columns; without $cols it has one dimension. The C
# functions compare the numbers of elements. One dimension fits everything, and everything fits one dimension; further
# dimensions may divide the columns, as those of a convolution's kernels do.
sub check_shape {
    my ($what, $shape, $rows, $cols) = @_;
    return if @$shape < 2 || !defined $cols || _divides($shape, $rows, $cols);
    _refuse(ESHAPE => "$what: shape (@{[join ', ', @$shape]}) given, ($rows, $cols) needed, or " . $rows * $cols . ' values in one dimension');
}

sub _divides {
    my ($shape, $rows, $cols) = @_;
    my ($first, @further) = @$shape;
    return $first == $rows && List::Util::product(@further) == $cols;
}

# A PDL with several dimensions, of which the first one is the columns.
sub _check_pdl {
    my ($what, $pdl, $rows, $cols) = @_;
    my @dims = $pdl->dims;
    return if @dims == 2 && $dims[0] == $cols && $dims[1] == $rows;
    return if _divides([reverse @dims], $rows, $cols);
    _refuse(ESHAPE => "$what: a PDL of dims (@{[join ', ', @dims]}) given, ($cols, $rows) needed for $rows rows x $cols columns: "
            . 'the first dimension of a PDL is the columns');
}

# Refuses memory for results that has other dimensions.
sub check_out {
    my ($out, $what, $dtype, $rows, $cols) = @_;
    return if !defined $cols && ref $out eq 'PDL';
    my $is_tensor = UNIVERSAL::isa($out, 'Polyverso::Tensor');
    return _check_string("$what: out", $$out, $dtype, $rows, $cols) if ref $out eq 'SCALAR';
    _refuse(EDTYPE => "$what: out must be a PDL, a tensor or a reference to a packed string, not " . Polyverso::Lists::shown($out))
        unless $is_tensor || is_pdl($out);
    return unless defined $cols;
    if    ($is_tensor)      { check_shape("$what: out", $out->shape, $rows, $cols) }
    elsif ($out->ndims > 1) { _check_pdl("$what: out", $out, $rows, $cols) }
    return;
}

sub _check_string {
    my ($what, $bytes, $dtype, $rows, $cols) = @_;
    return if defined $bytes && length $bytes == $TYPE{$dtype}{size} * $rows * ($cols // 1);
    return _check_packed($what, $bytes // '', $dtype, $rows, $cols);
}

sub _check_count {
    my ($what, $count, $rows, $cols) = @_;
    return if $count == $rows * ($cols // 1);
    my $needed = defined $cols ? "$rows rows x $cols columns need " . $rows * $cols : "$rows needed";
    _refuse(ESHAPE => "$what: $count value@{[$count == 1 ? '' : 's']} given, $needed");
}

# A packed string has no dtype: its length is what can be compared.
sub _check_packed {
    my ($what, $bytes, $dtype, $rows, $cols) = @_;
    my ($length, $size) = (length $bytes, $TYPE{$dtype}{size});
    return _check_count($what, $length / $size, $rows, $cols) if $length % $size == 0 && $length;
    my $needed = $rows * ($cols // 1);
    _refuse(ESHAPE => "$what: " . (Polyverso::Lists::is_number($bytes) ? "the number $bytes" : "a string of $length bytes")
            . " given, needed is an array reference or a PDL of $needed values, or a packed string of as many");
}

# Converts data for a C function: to a PDL of the table's type, or a packed string. $what names the table in errors.
# Data for $rows rows (of $cols columns, where there are two dimensions) is checked, if they are given.
sub data {
    my ($values, $dtype, $what, $rows, $cols) = @_;
    _refuse(ESHAPE => "$what: no data given") unless defined $values;
    if (!ref $values) {
        _check_packed($what, $values, $dtype, $rows, $cols)
            if defined $rows && length $values != $TYPE{$dtype}{size} * $rows * ($cols // 1);
        return $values;
    }
    return _of_list($values, $dtype, $what, $rows, $cols) if ref $values eq 'ARRAY';
    if (is_pdl($values)) {
        _check_pdl($what, $values, $rows, $cols) if defined $cols && $values->ndims > 1;
        check_bad($values);
        return _of_pdl($values, $dtype, $what);
    }
    _refuse(EDTYPE => "$what: a PDL, a tensor, an array reference or a packed string is needed, not " . Polyverso::Lists::shown($values))
        unless UNIVERSAL::isa($values, 'Polyverso::Tensor');
    check_shape($what, $values->shape, $rows, $cols) if defined $cols;
    return $values;
}

sub _of_list {
    my ($values, $dtype, $what, $rows, $cols) = @_;
    my ($shape, $flat) = Polyverso::Lists::flatten($values, $what);
    if (defined $rows) {
        check_shape($what, $shape, $rows, $cols);
        _check_count($what, scalar @$flat, $rows, $cols);
    }
    return packed($dtype, $flat, $shape, $what);
}

# Packs a list's numbers. One that an integer dtype can't hold is an error.
sub packed {
    my ($dtype, $flat, $shape, $what) = @_;
    my $type = $TYPE{$dtype};
    return Polyverso::CAPI::pack_halves($dtype, Polyverso::Lists::packed('d*', $flat, $shape, $what)) if $type->{half};
    Polyverso::Lists::check($flat, $shape, $what, "an integer of $type->{text}", sub { is_integer($_[0]) && _is_within($_[0], $type->{range}) })
        if $type->{range} && !_are_integers($flat, $type->{range});
    return Polyverso::Lists::packed($type->{pack}, $flat, $shape, $what);
}

sub _is_within { my ($value, $range) = @_; return $value >= $range->[0] && $value <= $range->[1] }

# Whether all values are certainly integers within the range: a quick look, before that at each value.
sub _are_integers {
    my ($flat, $range) = @_;
    return 0 if grep { !defined || !/\A-?[0-9]{1,15}\z/ } @$flat;
    return !@$flat || (_is_within(List::Util::min(@$flat), $range) && _is_within(List::Util::max(@$flat), $range));
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
    my ($values, $dtype, $what) = @_;
    my $type = $TYPE{$dtype};
    if ($type->{half}) {
        return ${ $values->copy->get_dataref } if $values->type eq 'ushort';
        return Polyverso::CAPI::pack_halves($dtype, ${ $values->double->copy->get_dataref });
    }
    my $wanted = PDL->can($type->{pdl})->();
    return $values if $values->get_datatype == $wanted->enum;
    my $converted = $values->convert($wanted);
    _refuse(EDTYPE => "$what holds $type->{pdl}, and not all of the data fits: round or cast it yourself")
        if $type->{range} && !PDL::all($converted == $values);
    return $converted;
}

# The dimensions of an array in the order of the other languages; none if it has only one.
sub _dimensions {
    my ($array) = @_;
    return $array->ndims > 1 ? reverse $array->dims : () if is_pdl($array);
    return () unless UNIVERSAL::isa($array, 'Polyverso::Tensor');
    my $shape = $array->shape;
    return @$shape > 1 ? @$shape : ();
}

# A call's options with the label of its arrays, by which the ranks of a group compare names and shapes. The same in every
# language: the CRC-32 of a line for each array, its name, a space, and its lengths. Unnamed arrays of one dimension have no
# label, and fit everything with as many elements.
sub labelled {
    my ($options, $names, @arrays) = @_;
    my @shapes = map { join 'x', _dimensions($_) } @arrays;
    return $options unless grep { length } @$names, @shapes;
    utf8::encode(my $text = join '', map { ($names->[$_] // '') . " $shapes[$_]\n" } 0 .. $#arrays);
    require Compress::Raw::Zlib;
    return { ref $options ? %$options : (flags => $options), label => Compress::Raw::Zlib::crc32($text) || 1 };
}

# Row ids or keys: a PDL, an array reference, or one number.
sub rows {
    my ($rows) = @_;
    return $rows if UNIVERSAL::isa($rows, 'Polyverso::Tensor');
    if (is_pdl($rows)) {
        return $rows if $rows->type eq 'longlong' || $rows->type eq 'indx';
        my $ids = $rows->flat->longlong;
        Polyverso::Error->_refuse($Polyverso::CAPI::MV_EINVAL, 'row ids are not integers') unless PDL::all($ids == $rows->flat);
        return $ids;
    }
    my @ids = ref $rows eq 'ARRAY' ? @$rows : ($rows);
    for my $id (@ids) {
        Polyverso::Error->_refuse($Polyverso::CAPI::MV_EINVAL, 'an id is ' . Polyverso::Lists::shown($id) . ', not a 64-bit integer')
            unless is_integer($id);
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

# The number of a device by its name, 'cuda:0'; undef is the host's memory.
sub place { return !defined $_[0] ? $Polyverso::CAPI::MV_HOST : $_[0] =~ /\A-?[0-9]+\z/ ? $_[0] : Polyverso::CAPI::mv_device_find($_[0]) }

1;

__END__

=encoding utf8

=head1 NAME

Polyverso::Values - conversion of PDLs and arrays to and from the library's data; internal

=cut
