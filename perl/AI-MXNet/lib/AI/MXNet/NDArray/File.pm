package AI::MXNet::NDArray::File;

# Arrays in MXNet's own file format, .params: https://github.com/apache/mxnet's NDArray::Save. All numbers are
# little-endian.
#
#   file:  u64 0x112, u64 0, u64 count, arrays, u64 count of names, names (u64 length, bytes)
#   array: u32 magic, i32 storage type, [sparse: shape of the stored values], shape, i32 device type, i32 device id,
#          i32 dtype, [sparse, for each auxiliary array: i32 dtype, shape], values, [auxiliary arrays]
#   shape: i32 dimensions, i64 each

use strict;
use warnings;

use AI::MXNet::Base qw(DTYPE_STR_TO_MX DTYPE_MX_TO_STR);
use Polyverso::Tensor;
use Scalar::Util qw(blessed);

use constant { LIST_MAGIC => 0x112, ARRAY_MAGIC => 0xF993FAC9, ARRAY_MAGIC_NUMPY => 0xF993FACA, DENSE => 0, ROW_SPARSE => 1 };

sub _refuse { goto &AI::MXNet::Base::refuse }

# ------------------------------------------------------------------ writing

sub _shape { my ($shape) = @_; return pack 'l< q<*', scalar @$shape, @$shape }

sub _write_array {
    my ($array) = @_;
    my $sparse = $array->stype eq 'row_sparse';
    my @parts  = $sparse ? reverse $array->tensor->parts : $array->tensor;
    my $dtype  = DTYPE_STR_TO_MX->{ $array->dtype };
    return join '', pack('L< l<', ARRAY_MAGIC, $sparse ? ROW_SPARSE : DENSE),
        $sparse ? _shape($parts[0]->shape) : (), _shape($array->shape), pack('l<3', 1, 0, $dtype),
        $sparse ? pack('l<', DTYPE_STR_TO_MX->{int64}) . _shape($parts[1]->shape) : (), map { _bytes($_) } @parts;
}

# A tensor's elements as bytes, in the order and form of its memory.
sub _bytes {
    my $tensor = AI::MXNet::NDArray::_here($_[0]);
    my ($address, $count) = Polyverso::CAPI::mv_tensor_data($tensor);
    return '' unless $count;
    return unpack 'P' . $tensor->info->{bytes}, pack 'J', $address;
}

sub to_bytes {
    my ($data) = @_;
    my @names  = ref $data eq 'HASH' ? sort keys %$data : ();
    my @arrays = ref $data eq 'HASH' ? @$data{@names} : ref $data eq 'ARRAY' ? @$data : $data;
    for my $array (@arrays) {
        _refuse(EINVAL => 'only arrays can be saved, not ' . ($array // 'undef')) unless blessed $array && $array->isa('AI::MXNet::NDArray');
    }
    utf8::encode($_) for @names;
    return join '', pack('Q< Q< Q<', LIST_MAGIC, 0, scalar @arrays), map({ _write_array($_) } @arrays),
        pack('Q<', scalar @names), map { pack 'Q</a*', $_ } @names;
}

# ------------------------------------------------------------------ reading

# Takes the next `bytes` bytes at the position `at`. Throws if the file ends before that.
sub _take {
    my ($file, $bytes) = @_;
    _refuse(EINVAL => "$file->{name}: the file ends early, at byte " . length ${ $file->{bytes} })
        if $bytes < 0 || $file->{at} + $bytes > length ${ $file->{bytes} };
    my $taken = substr ${ $file->{bytes} }, $file->{at}, $bytes;
    $file->{at} += $bytes;
    return $taken;
}

sub _number { my ($file, $letter, $bytes) = @_; return unpack $letter, _take($file, $bytes) }

sub _read_shape {
    my ($file) = @_;
    my $dims = _number($file, 'l<', 4);
    _refuse(EINVAL => "$file->{name}: invalid array with $dims dimensions") if $dims < 0 || $dims > 8;
    my @shape = unpack 'q<*', _take($file, 8 * $dims);
    _refuse(EINVAL => "$file->{name}: invalid array shape (@shape)") if grep { $_ < 0 } @shape;
    return \@shape;
}

sub _read_dtype {
    my ($file) = @_;
    my $number = _number($file, 'l<', 4);
    return AI::MXNet::Base::dtype_in(DTYPE_MX_TO_STR->{$number} // _refuse(EDTYPE => "$file->{name}: unknown dtype number $number"));
}

my %SIZE = (f32 => 4, f64 => 8, i64 => 8, i32 => 4, u8 => 1, i8 => 1, f16 => 2, bf16 => 2);

sub _read_values {
    my ($file, $shape, $dtype) = @_;
    my $bytes = _take($file, AI::MXNet::Base::product(@$shape, $SIZE{$dtype}));
    return Polyverso::Tensor->_new(Polyverso::CAPI::mv_tensor_from([Polyverso::Tensor::_code($dtype), $bytes], $shape));
}

sub _read_array {
    my ($file) = @_;
    my $magic = _number($file, 'L<', 4);
    _refuse(EINVAL => sprintf '%s: an array begins with %08x, which MXNet 1.x does not write', $file->{name}, $magic)
        if $magic != ARRAY_MAGIC && $magic != ARRAY_MAGIC_NUMPY;
    my $storage = _number($file, 'l<', 4);
    _refuse(EINVAL => "$file->{name}: unsupported storage type $storage: only dense and row-sparse arrays can be read")
        if $storage != DENSE && $storage != ROW_SPARSE;
    my $held = $storage == ROW_SPARSE ? _read_shape($file) : undef;
    my $shape = _read_shape($file);
    _take($file, 8);    # device type and id
    my $dtype = _read_dtype($file);
    return AI::MXNet::NDArray->_wrap(_read_values($file, $shape, $dtype)) unless $held;
    my $ids_dtype = _read_dtype($file);
    my $ids_shape = _read_shape($file);
    my $values = _read_values($file, $held, $dtype);
    my $ids    = _read_values($file, $ids_shape, $ids_dtype);
    return AI::MXNet::NDArray->_wrap(Polyverso::Tensor->sparse($ids->cast('i64'), $values, $shape->[0]));
}

sub _read_count {
    my ($file) = @_;
    my $count = _number($file, 'Q<', 8);
    _refuse(EINVAL => "$file->{name}: invalid count of $count arrays or names, more than the file has bytes") if $count > length ${ $file->{bytes} };
    return $count;
}

sub from_bytes {
    my ($name, $bytes) = @_;
    my $file = { name => $name, bytes => $bytes, at => 0 };
    my $magic = _number($file, 'Q<', 8);
    _refuse(EINVAL => sprintf '%s is not a file of arrays: it begins with %016x', $name, $magic) if $magic != LIST_MAGIC;
    _take($file, 8);
    my @arrays = map { _read_array($file) } 1 .. _read_count($file);
    my @names = map { my $text = _take($file, _number($file, 'Q<', 8)); utf8::decode($text); $text } 1 .. _read_count($file);
    return \@arrays unless @names;
    _refuse(EINVAL => "$name: " . @names . ' names for ' . @arrays . ' arrays') if @names != @arrays;
    my %named;
    @named{@names} = @arrays;
    return \%named;
}

# ------------------------------------------------------------------ files

# Writes a file atomically, through a temporary file that is renamed.
sub write_whole {
    my ($path, $bytes) = @_;
    my $partial = "$path.$$.part";
    open my $file, '>:raw', $partial or _refuse(ESYSTEM => "$partial: $!");
    print {$file} $bytes and close $file and rename $partial, $path or do {
        my $why = $!;
        unlink $partial;
        _refuse(ESYSTEM => "$path could not be written: $why");
    };
    return;
}

sub read_whole {
    my ($path) = @_;
    open my $file, '<:raw', $path or _refuse(ENOTFOUND => "$path: $!");
    local $/;
    return <$file> // '';
}

# ------------------------------------------------------------------ the methods

package AI::MXNet::NDArray;

sub save { my ($class, $path, $data) = @_; return AI::MXNet::NDArray::File::write_whole($path, AI::MXNet::NDArray::File::to_bytes($data)) }
sub load { my ($class, $path) = @_; return AI::MXNet::NDArray::File::from_bytes($path, \AI::MXNet::NDArray::File::read_whole($path)) }
sub load_frombuffer { my ($class, $bytes) = @_; return AI::MXNet::NDArray::File::from_bytes('the buffer', \$bytes) }

1;

__END__

=encoding utf8

=head1 NAME

AI::MXNet::NDArray::File - arrays in files

=head1 SYNOPSIS

    use AI::MXNet qw(mx);

    my $file = "/tmp/weights-$$.params";
    mx->nd->save($file, { fc1_weight => mx->nd->ones([2, 3]), fc1_bias => mx->nd->zeros([2]) });
    my $weights = mx->nd->load($file);
    print join(' ', sort keys %$weights), "\n";                      # fc1_bias fc1_weight
    mx->nd->save($file, [mx->nd->arange(stop => 3)]);
    print mx->nd->load($file)->[0]->aspdl, "\n";                     # [0 1 2]
    unlink $file;

=head1 DESCRIPTION

MXNet's own format, for dense and row-sparse arrays: MXNet can read these files, and its files can be read here. Files
are written atomically. A damaged file, or one of another format, is an error that says so.

=cut
