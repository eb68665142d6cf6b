package Polyverso::Tensor;

# An array of numbers: a blessed handle. Thin methods over mv_tensor_*, which do the work.

use strict;
use warnings;

use Polyverso::CAPI ();
use Polyverso::Error;
use Polyverso::Lists ();
use Polyverso::Names ();
use Polyverso::Values;

my %CODE = map { lc($_) => ${ $Polyverso::CAPI::{"MV_$_"} } } qw(F32 F64 I64 I32 U8 I8 F16 BF16);
my %NAME = reverse %CODE;

# These are defined before `use overload`, which calls them.
sub _constant { return ${ $Polyverso::CAPI::{"MV_$_[0]"} } }
sub _operator { my $op = _constant($_[0]); return sub { $_[0]->_binary($op, $_[1], $_[2]) } }
sub _in_place { my $op = _constant($_[0]); return sub { $_[0]->_binary($op, $_[1], 0, $_[0]) } }

use overload
    '+'    => _operator('ADD'),
    '-'    => _operator('SUB'),
    '*'    => _operator('MUL'),
    '/'    => _operator('DIV'),
    '**'   => _operator('POW'),
    '=='   => _operator('EQ'),
    '!='   => _operator('NE'),
    '<'    => _operator('LT'),
    '<='   => _operator('LE'),
    '>'    => _operator('GT'),
    '>='   => _operator('GE'),
    '+='   => _in_place('ADD'),
    '-='   => _in_place('SUB'),
    '*='   => _in_place('MUL'),
    '/='   => _in_place('DIV'),
    '**='  => _in_place('POW'),
    'x'    => sub { $_[2] ? _tensor($_[1])->matmul($_[0]) : $_[0]->matmul($_[1]) },
    'neg'  => sub { $_[0]->_unary('NEG') },
    'abs'  => sub { $_[0]->_unary('ABS') },
    'sqrt' => sub { $_[0]->_unary('SQRT') },
    'exp'  => sub { $_[0]->_unary('EXP') },
    'log'  => sub { $_[0]->_unary('LOG') },
    '""'   => sub { ${ $_[0] } ? Polyverso::CAPI::mv_tensor_text($_[0]) : ref($_[0]) . '(freed)' },
    'bool' => sub { 1 },
    '='    => sub { $_[0]->copy };

sub _code {
    my ($dtype) = @_;
    return $CODE{ $dtype // 'f32' } // Polyverso::Error->_refuse($Polyverso::CAPI::MV_EINVAL,
        "a tensor holds @{[sort keys %CODE]}, not '$dtype'"
            . (Polyverso::Lists::is_number($dtype) ? ': several dimensions are one argument, such as [2, 3]' : ''));
}

# The name of an mv_dtype.
sub _name { return $NAME{ $_[0] } }

sub _new { my ($class, $handle) = @_; return bless \$handle, ref $class || $class }

# An operand: a tensor, or numbers, which are copied to the device of $like.
sub _tensor {
    my ($value, $dtype, $like) = @_;
    return $value if ref $value && UNIVERSAL::isa($value, __PACKAGE__);
    my $made   = __PACKAGE__->copy_of($value, $dtype);
    my $number = $like ? $like->info->{device} : $Polyverso::CAPI::MV_HOST;
    return $number < 0 ? $made : $made->to($number);
}

sub _binary {
    my ($self, $op, $other, $swapped, $out) = @_;
    my $made;
    if (ref $other) {
        my $operand = _tensor($other, undef, $self);
        my ($first, $second) = $swapped ? ($operand, $self) : ($self, $operand);
        $made = Polyverso::CAPI::mv_tensor_binary($op, $first, $second, $out);
    }
    else {
        $made = Polyverso::CAPI::mv_tensor_scalar($op, $self, $other, $swapped ? 1 : 0, $out);
    }
    return $out // $self->_new($made);
}

sub _unary {
    my ($self, $op) = @_;
    return $self->_new(Polyverso::CAPI::mv_tensor_unary(_constant($op), $self, undef));
}

sub _reduce {
    my ($self, $op, $axis) = @_;
    $axis //= $Polyverso::CAPI::MV_ALL_AXES;
    return $self->_new(Polyverso::CAPI::mv_tensor_reduce(_constant($op), $self, $axis));
}

# ------------------------------------------------------------------ construction

sub zeros {
    my ($class, $shape, $dtype, $device) = @_;
    Polyverso::Error->_refuse($Polyverso::CAPI::MV_EINVAL, 'the shape is missing: pass a number, or several as [2, 3]') unless defined $shape;
    return $class->_new(Polyverso::CAPI::mv_tensor_create(_code($dtype), $shape)) unless defined $device;
    return $class->_new(Polyverso::CAPI::mv_tensor_create_on(Polyverso::Values::place($device), _code($dtype), $shape));
}

sub full { my ($class, $shape, $value, $dtype, $device) = @_; return $class->zeros($shape, $dtype, $device)->fill($value) }
sub ones { my ($class, $shape, $dtype, $device) = @_; return $class->full($shape, 1, $dtype, $device) }

sub range {
    my ($class, $count, $start, $step, $dtype, $device) = @_;
    my $self = $class->zeros($count, $dtype, $device);
    Polyverso::CAPI::mv_tensor_range($self, $start // 0, $step // 1);
    return $self;
}

sub uniform {
    my ($class, $shape, $seed, $low, $high, $dtype, $device) = @_;
    my $self = $class->zeros($shape, $dtype, $device);
    Polyverso::CAPI::mv_tensor_uniform($self, Polyverso::Values::integer('the seed', $seed), $low // 0, $high // 1);
    return $self;
}

sub normal {
    my ($class, $shape, $seed, $mean, $deviation, $dtype, $device) = @_;
    my $self = $class->zeros($shape, $dtype, $device);
    Polyverso::CAPI::mv_tensor_normal($self, Polyverso::Values::integer('the seed', $seed), $mean // 0, $deviation // 1);
    return $self;
}

sub copy_of {
    my ($class, $data, $dtype, $device) = @_;
    return $class->copy_of($data, $dtype)->to($device) if defined $device;
    return defined $dtype ? $data->cast($dtype) : $data->copy if UNIVERSAL::isa($data, __PACKAGE__);
    if (Polyverso::Values::is_pdl($data)) {
        Polyverso::Values::check_bad($data);
        my $self = $class->_new(Polyverso::CAPI::mv_tensor_from($data, [reverse $data->dims]));
        return defined $dtype ? $self->cast($dtype) : $self;
    }
    my $what = 'Polyverso::Tensor->copy_of';
    my ($shape, $flat) = Polyverso::Lists::flatten($data, $what);
    my $code = _code($dtype);
    return $class->_new(Polyverso::CAPI::mv_tensor_from([$code, Polyverso::Values::packed($code, $flat, $shape, $what)], $shape));
}

# A tensor of a packed string's numbers, and back.
sub _of_packed {
    my ($class, $bytes, $shape, $dtype) = @_;
    return $class->_new(Polyverso::CAPI::mv_tensor_from([_code($dtype), $bytes], $shape));
}

sub _packed {
    my ($self) = @_;
    my ($address) = Polyverso::CAPI::mv_tensor_data($self);
    return unpack 'P' . $self->info->{bytes}, pack 'J', $address;
}

sub view {
    my ($class, $pdl) = @_;
    Polyverso::Error->throw($Polyverso::CAPI::MV_EDTYPE, 'Polyverso::Tensor->view: a PDL is needed, not ' . Polyverso::Lists::shown($pdl))
        unless Polyverso::Values::is_pdl($pdl);
    Polyverso::Values::check_bad($pdl);
    return $class->_new(Polyverso::CAPI::mv_tensor_view($pdl, [reverse $pdl->dims]));
}

sub sparse {
    my ($class, $rows, $values, $height) = @_;
    Polyverso::Values::integer('the height', $height);
    return $class->_new(Polyverso::CAPI::mv_tensor_sparse(Polyverso::Values::rows($rows), _tensor($values), $height));
}

# ------------------------------------------------------------------ properties

sub handle     { ${ $_[0] } }
sub info       { Polyverso::CAPI::mv_tensor_describe($_[0]) }
sub shape      { $_[0]->info->{shape} }
sub dtype      { _name($_[0]->info->{dtype}) }
sub dims       { scalar @{ $_[0]->shape } }
sub count      { $_[0]->info->{count} }
sub row_sparse { $_[0]->info->{row_sparse} }
sub device     { my $number = $_[0]->info->{device}; return $number < 0 ? 'cpu' : "cuda:$number" }
sub is_float   { $_[0]->dtype =~ /f/ }

# A PDL on the same memory, which it keeps alive. PDL's first dimension is the tensor's last.
sub pdl { Polyverso::Values::have_pdl(); Polyverso::CAPI::tensor_pdl($_[0]) }

sub get {
    my ($self, @index) = @_;
    my ($value, $integer) = Polyverso::CAPI::mv_tensor_get($self, \@index);
    return $self->is_float ? $value : $integer;
}

sub set {
    my ($self, @index) = @_;
    my $value = pop @index;
    Polyverso::CAPI::mv_tensor_set($self, \@index, $value);
    return;
}

sub item { local $Polyverso::Names::FUNCTION{mv_tensor_reshape} = '$tensor->item'; return $_[0]->reshape([])->get }

sub to_list {
    my ($self) = @_;
    return $self->to('cpu')->to_list if $self->info->{device} >= 0;    # one copy for all elements
    my @shape = @{ $self->shape };
    return $self->get unless @shape;
    return [map { @shape == 1 ? $self->get($_) : $self->row($_)->to_list } 0 .. $shape[0] - 1];
}

# ------------------------------------------------------------------ views and copies

sub take {
    my ($self, $rows) = @_;
    return $self->_new(Polyverso::CAPI::mv_tensor_take($self, Polyverso::Values::rows($rows)));
}

sub slice {
    my ($self, $begin, $end) = @_;
    return $self->_new(Polyverso::CAPI::mv_tensor_slice($self, $begin, $end // $self->shape->[0]));
}

sub row       { my ($self, $row) = @_; return $self->_new(Polyverso::CAPI::mv_tensor_row($self, $row)) }
sub reshape   { my ($self, @shape) = @_; return $self->_new(Polyverso::CAPI::mv_tensor_reshape($self, @shape > 1 ? \@shape : $shape[0])) }
sub copy      { my ($self) = @_; return $self->_new(Polyverso::CAPI::mv_tensor_copy($self, undef)) }
sub assign    { my ($self, $other) = @_; Polyverso::CAPI::mv_tensor_copy(_tensor($other), $self); return $self }
sub to        { my ($self, $device) = @_; return $self->_new(Polyverso::CAPI::mv_tensor_to($self, Polyverso::Values::place($device))) }
sub cast      { my ($self, $dtype) = @_; return $self->_new(Polyverso::CAPI::mv_tensor_cast($self, _code($dtype))) }
sub transpose { my ($self) = @_; return $self->_new(Polyverso::CAPI::mv_tensor_transpose($self)) }
sub parts     { my ($self) = @_; return map { $self->_new($_) } Polyverso::CAPI::mv_tensor_parts($self) }
sub to_dense  { my ($self) = @_; return $self->_new(Polyverso::CAPI::mv_tensor_to_dense($self)) }
sub to_sparse { my ($self) = @_; return $self->_new(Polyverso::CAPI::mv_tensor_to_sparse($self)) }
sub fill      { my ($self, $value) = @_; Polyverso::CAPI::mv_tensor_fill($self, $value); return $self }

# ------------------------------------------------------------------ arithmetic

sub axpy {
    my ($self, $alpha, $other) = @_;
    Polyverso::CAPI::mv_tensor_axpy($alpha, _tensor($other, undef, $self), $self);
    return $self;
}

sub minimum { $_[0]->_binary(_constant('MIN'), $_[1]) }
sub maximum { $_[0]->_binary(_constant('MAX'), $_[1]) }
sub sum     { $_[0]->_reduce('SUM',      $_[1]) }
sub mean    { $_[0]->_reduce('MEAN',     $_[1]) }
sub min     { $_[0]->_reduce('LEAST',    $_[1]) }
sub max     { $_[0]->_reduce('GREATEST', $_[1]) }
sub argmin  { $_[0]->_reduce('ARGMIN',   $_[1]) }
sub argmax  { $_[0]->_reduce('ARGMAX',   $_[1]) }
sub norm    { $_[0]->_reduce('NORM',     $_[1]) }
sub dot     { my ($self, $other) = @_; return Polyverso::CAPI::mv_tensor_dot($self, _tensor($other, undef, $self)) }

sub close {
    my ($self, $other, $relative, $absolute) = @_;
    return Polyverso::CAPI::mv_tensor_close($self, _tensor($other), $relative // 1e-5, $absolute // 1e-8);
}
sub equal { my ($self, $other) = @_; return $self->close($other, 0, 0) }

sub matmul {
    my ($self, $other, %how) = @_;
    my $flags = ($how{transpose_a} ? _constant('TRANSPOSE_A') : 0) | ($how{transpose_b} ? _constant('TRANSPOSE_B') : 0);
    return $self->_new(Polyverso::CAPI::mv_tensor_matmul($self, _tensor($other, undef, $self), $flags, undef));
}

# ------------------------------------------------------------------ destruction

sub free {
    my ($self) = @_;
    my $handle = $$self;
    $$self = 0;
    Polyverso::CAPI::mv_tensor_free($handle) if $handle;
    return;
}

# Refuses to be copied: the destructor of the copy would free the original's tensor.
sub STORABLE_freeze {
    Polyverso::Error->throw($Polyverso::CAPI::MV_ENOSYS, 'Storable does not support tensors: store an AI::MXNet::NDArray or numbers, or use copy()');
}

# A new thread gets undef in place of a tensor: both threads would free it.
sub CLONE_SKIP { return 1 }

sub DESTROY {
    my ($self) = @_;
    return if ${^GLOBAL_PHASE} eq 'DESTRUCT';
    local ($@, $!);
    eval { $self->free };
    return;
}

1;

__END__

=encoding utf8

=head1 NAME

Polyverso::Tensor - an array of numbers in shared memory, for scripts and for tables

=head1 SYNOPSIS

    use PDL;
    use Polyverso;
    use Polyverso::Tensor;

    my $node    = Polyverso->init;
    my $table   = $node->matrix(rows => 10, cols => 64);
    my $weights = Polyverso::Tensor->normal([10, 64], 1);    # shape, seed
    $weights *= 0.1;
    $table->add($weights);            # a server on the same host reads the tensor's memory, without a copy
    print $weights->sum(0);           # along the rows
    $weights->pdl->slice('(0),:') .= 0;                      # the same memory, as a PDL
    $node->shutdown;

=head1 DESCRIPTION

A dense array of f32, f64, i64, i32, u8, i8, f16 or bf16 in shared memory, or a row-sparse one. Operators make new
tensors; C<+=> and the other assignment operators work in place. Positions count from 0. The names are the same in
Python and Lua. F<polyverso/tensor.h> describes each function. A failed call throws a L<Polyverso::Error>.

=head1 CONSTRUCTORS

The default of the dtype is C<'f32'>. The last argument is where the tensor is made: C<undef> or C<'cpu'> for shared
memory, or C<'cuda:0'>; see F<docs/cuda.md>.

=head2 zeros($shape, $dtype, $device), ones($shape, $dtype, $device), full($shape, $value, $dtype, $device)

C<$shape> is an array reference, or one number.

=head2 range($count, $start, $step, $dtype, $device)

A tensor of C<$count> numbers: C<$start> (default 0), C<$start + $step> and so on; the default of C<$step> is 1.

=head2 uniform($shape, $seed, $low, $high, $dtype, $device), normal($shape, $seed, $mean, $deviation, $dtype, $device)

Random numbers, the same for a seed on every machine and in every language.

=head2 copy_of($data, $dtype, $device), view($pdl)

C<copy_of> copies nested arrays, a number, a PDL or a tensor. C<view> makes a tensor on a PDL's own memory, which it
keeps alive.

=head2 sparse($rows, $values, $height)

A row-sparse tensor with copies of the values' rows at these ids; rows with the same id are summed.

=head1 METHODS

=head2 shape, dtype, is_float, dims, count, row_sparse, device, info, handle

C<shape> is a reference to an array of the lengths, outermost first; C<dtype> a name such as C<'f32'>; C<is_float>
whether that is a type of floats; C<dims> the number of dimensions; C<count> the number of elements; C<row_sparse>
whether only some rows are stored; C<device> C<'cpu'> or C<'cuda:0'>. C<info> has all of these as a hash; C<handle> is the C<mv_tensor> for the C
functions.

=head2 get(@index), set(@index, $value), item, to_list, pdl

C<get> and C<set> access one element; C<item> returns the only element; C<to_list> returns nested arrays; C<pdl> returns
a PDL on the same memory, with its dimensions in PDL's order. A device's tensor has no PDL: see C<to>.

=head2 row($i), slice($begin, $end), reshape($shape)

Views of the tensor's memory. Without C<$end> a slice has all rows from C<$begin> on.

=head2 copy, to($device), cast($dtype), transpose, take($rows), parts, to_dense, to_sparse

These make copies; C<to> makes one on another device or on the C<'cpu'>. Only C<parts> returns views: a row-sparse
tensor's ids and rows.

=head2 fill($value), assign($other), axpy($alpha, $other)

These change the tensor in place. C<axpy> adds C<$alpha> times another tensor, which may be row-sparse.

=head2 + - * / ** == != < <= > >= x neg abs sqrt exp log, minimum($other), maximum($other), matmul($other, %how)

Element by element, except C<x>, the matrix product, which is also
C<matmul($other, transpose_a =E<gt> 1, transpose_b =E<gt> 1)>.

=head2 sum($axis), mean, min, max, argmin, argmax, norm

Reductions along an axis; without an axis over all elements, to a tensor without dimensions.

=head2 dot($other), close($other, $relative, $absolute), equal($other)

C<dot> returns the sum of the products of elements, a number. C<close> returns whether the shapes are equal and
C<|self - other| E<lt>= absolute + relative * |other|> for all elements; the defaults are 1e-5 and 1e-8. C<equal>
compares shapes and elements exactly.

=head2 free

Frees the tensor now, rather than with its last reference.

=cut
