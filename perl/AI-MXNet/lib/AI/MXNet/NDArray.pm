package AI::MXNet::NDArray;

# An array: a Polyverso::Tensor with MXNet's interface, a context, in whose memory it is, and the unfinished pulls into it.
# Contexts of the CPU are nominal: all of them are in the host's memory.
# Arithmetic is in NDArray/Operators.pm.

use Mouse;

use AI::MXNet::Base ();
use AI::MXNet::Context;
use AI::MXNet::NS;
use Hash::Util::FieldHash ();
use List::Util ();
use Polyverso::Tensor;
use Polyverso::Values;
use Scalar::Util qw(blessed looks_like_number);

has _tensor  => (is => 'rw', required => 1);
has context  => (is => 'ro', default => sub { AI::MXNet::Context->current_ctx });
has writable => (is => 'rw', default => 1);
# Shared by all views of one memory: { pulls => [requests that will write into it] }.
has _memory => (is => 'ro', default => sub { {} });

use AI::MXNet::NDArray::File;
use AI::MXNet::NDArray::Operators;
use AI::MXNet::NDArray::Slice;

*refuse = \&AI::MXNet::Base::refuse;

# ------------------------------------------------------------------ construction

# Makes an array of a tensor. Called on an array, the result has that array's context, and with share => 1 it is a view
# of that array. A tensor in the memory of another device than the context's is copied there.
sub _wrap {
    my ($self, $tensor, %with) = @_;
    my %fields = (_tensor => $tensor);
    if (ref $self) {
        $fields{context} = $self->context;
        @fields{qw(_memory writable)} = ($self->_memory, $self->writable) if $with{share};
    }
    $fields{context} = $with{ctx} if $with{ctx};
    $fields{context} //= AI::MXNet::Context->current_ctx;
    my ($info, $place) = ($tensor->info, $fields{context}->_place);
    $fields{_tensor} = $tensor->to($place) if $info->{device} != $place;
    my $class = $info->{row_sparse} ? 'AI::MXNet::NDArray::RowSparse' : __PACKAGE__;
    return $class->new(%fields);
}

# Parses the options after a function's operands: pairs or a hash, optionally preceded by a context.
sub _options {
    my ($known, @given) = @_;
    my %options;
    $options{ctx} = shift @given if blessed $given[0] && $given[0]->isa('AI::MXNet::Context');
    @given = map { ref $_ eq 'HASH' ? %$_ : $_ } @given;
    refuse(EINVAL => "an option without a value: @given") if @given % 2;
    %options = (%options, @given);
    my ($unknown) = grep { !$known->{$_} } sort keys %options;
    refuse(EINVAL => "unknown option '$unknown'; known: " . join ', ', sort keys %$known) if defined $unknown;
    delete @options{ grep { !defined $options{$_} } keys %options };
    refuse(EINVAL => "ctx is '$options{ctx}': a context is needed, such as mx->cpu or mx->gpu(0)")
        if exists $options{ctx} && !(blessed $options{ctx} && $options{ctx}->isa('AI::MXNet::Context'));
    return %options;
}

my %CREATE = map { $_ => 1 } qw(ctx dtype out stype name __layout__);

# Makes a new array, which $fill->(tensor) initializes; with `out`, copies it there.
sub _create {
    my ($class, $shape, $fill, @given) = @_;
    my %options = _options(\%CREATE, @given);
    my $out = $options{out};
    if (!$out) {
        my $place  = $options{ctx} // (ref $class ? $class->context : AI::MXNet::Context->current_ctx);
        my $tensor = Polyverso::Tensor->zeros($shape, AI::MXNet::Base::dtype_in($options{dtype}), $place->_place);
        $fill->($tensor) if $fill;
        my $made = $class->_wrap($tensor, ctx => $options{ctx});
        return $made->tostype($options{stype} // 'default');
    }
    my $made = $class->_create($shape, $fill, dtype => $out->dtype);
    $made->copyto($out);
    return $out;
}

sub zeros { my ($class, $shape, @options) = @_; return $class->_create($shape, undef, @options) }
*empty = \&zeros;
sub ones { my ($class, $shape, @options) = @_; return $class->full($shape, 1, @options) }

sub full {
    my ($class, $shape, $value, @options) = @_;
    return $class->_create($shape, sub { $_[0]->fill($value) }, @options);
}

sub array {
    my ($class, $source, @given) = @_;
    my %options = _options({ ctx => 1, dtype => 1 }, @given);
    my $dtype = $options{dtype} // 'float32';
    $source = $source->sever if blessed $source && $source->isa('AI::MXNet::NDArray::Slice');
    return $class->_wrap(_tensor_from($source, $dtype), ctx => $options{ctx});
}

# Makes a new tensor with the numbers of a source.
sub _tensor_from {
    my ($source, $dtype) = @_;
    my $name = AI::MXNet::Base::dtype_in($dtype);
    if (Polyverso::Values::is_pdl($source)) {
        $source = $source->xchg(0, 1) if $source->isa('PDL::Matrix');    # its first dimension is the rows
        $source = AI::MXNet::Base::pdl_as($source, $dtype);
        $source = $source->dummy(0) unless $source->getndims;
        my $tensor = Polyverso::Tensor->copy_of($source);
        return $tensor->dtype eq $name ? $tensor : $tensor->cast($name);
    }
    if (blessed $source && $source->isa(__PACKAGE__)) {
        my $tensor = $source->tostype('default')->tensor;
        return $tensor->dtype eq $name ? $tensor->copy : $tensor->cast($name);
    }
    return Polyverso::Tensor->copy_of([$source], $name) unless ref $source;
    # Nested Perl arrays may contain PDLs and other array objects.
    return _tensor_from(PDL->pdl(_plain($source)), $dtype) if _holds_objects($source);
    return Polyverso::Tensor->copy_of($source, $name);
}

sub _holds_objects {
    my ($value) = @_;
    return ref $value eq 'ARRAY' ? List::Util::any { _holds_objects($_) } grep { ref } @$value : blessed $value;
}

sub _plain {
    my ($value) = @_;
    return [map { _plain($_) } @$value] if ref $value eq 'ARRAY';
    return !blessed $value ? $value : $value->isa('PDL') ? $value->unpdl : $value->aspdl->unpdl;
}

my %RANGE = map { $_ => 1 } qw(start stop step repeat ctx dtype);

sub arange {
    my ($class, @given) = @_;
    unshift @given, 'start' if @given % 2 && !ref $given[0];
    my %options = _options(\%RANGE, @given);
    my ($start, $stop, $step) = ($options{start} // 0, $options{stop}, $options{step} // 1);
    ($start, $stop) = (0, $start) unless defined $stop;
    refuse(EINVAL => 'step is 0') if $step == 0;
    my $count = List::Util::max(0, PDL->pdl(($stop - $start) / $step)->ceil->sclr);
    my $tensor = Polyverso::Tensor->range($count, $start, $step, AI::MXNet::Base::dtype_in($options{dtype}));
    my $times = $options{repeat} // 1;
    $tensor = $tensor->take([map { ($_) x $times } 0 .. $count - 1]) if $times != 1;
    return $class->_wrap($tensor, ctx => $options{ctx});
}

sub concatenate {
    my ($class, $arrays, @given) = @_;
    my %options = _options({ axis => 1, always_copy => 1 }, @given);
    refuse(EINVAL => 'no arrays to concatenate') unless @$arrays;
    my ($first, $axis) = ($arrays->[0], $options{axis} // 0);
    return $first if @$arrays == 1 && !($options{always_copy} // 1);
    my @shape = @{ $first->shape };
    $axis += @shape if $axis < 0;
    for my $array (@$arrays) {
        my @rest = @{ $array->shape };
        my $fits = @rest == @shape && $array->dtype eq $first->dtype;
        $fits &&= $_ == $axis || $rest[$_] == $shape[$_] for 0 .. $#shape;
        refuse(ESHAPE => "$first of @{[$first->dtype]} and $array of @{[$array->dtype]} can't be concatenated along axis $axis")
            unless $fits;
    }
    $shape[$axis] = List::Util::sum(map { $_->shape->[$axis] } @$arrays);
    my $made = $class->zeros(\@shape, ctx => $first->context, dtype => $first->dtype);
    my $at = 0;
    for my $array (@$arrays) {
        my $next = $at + $array->shape->[$axis];
        my (@begin, @end) = (0) x @shape;
        @end = @shape;
        ($begin[$axis], $end[$axis]) = ($at, $next);
        if ($axis == 0) { $made->_rows($at, $next)->set($array) }
        else { AI::MXNet::NDArray::Slice->new(parent => $made, begin => \@begin, end => \@end)->set($array) }
        $at = $next;
    }
    return $made;
}

sub zeros_like { my ($like) = grep { ref } @_; return $like->zeros($like->shape, dtype => $like->dtype, stype => $like->stype) }
sub ones_like { my ($like) = grep { ref } @_; return $like->ones($like->shape, dtype => $like->dtype) }

# ------------------------------------------------------------------ properties

# The Polyverso::Tensor, for reading or writing. Waits for unfinished pulls into it.
sub tensor {
    my ($self) = @_;
    $self->wait_to_read if $self->{_memory}{pulls};
    return $self->{_tensor};
}

# Waits for all unfinished pulls into this memory, then throws the first error, if any.
sub wait_to_read {
    my ($self) = @_;
    my $pulls = delete $self->{_memory}{pulls} or return;
    my $failed;
    for my $pull (@$pulls) { eval { $pull->wait; 1 } or $failed //= $@ }
    die $failed if defined $failed;
    return;
}

Hash::Util::FieldHash::fieldhash(my %PULLED);    # the living arrays with possibly unfinished pulls

# Records a request that will write into this memory. Drops finished requests, except those with unreported errors.
sub _pulled_by {
    my ($self, $request) = @_;
    my $memory = $self->_memory;
    @{ $memory->{pulls} } = ((grep { defined $_->handle || $_->{error} } @{ $memory->{pulls} // [] }), $request);
    Scalar::Util::weaken($PULLED{$self} = $self);
    return;
}

sub waitall {
    my @arrays = grep { defined } values %PULLED;
    %PULLED = ();
    $_->wait_to_read for @arrays;
    return;
}

sub handle { $_[0]->tensor->handle }
sub shape  { $_[0]{_tensor}->shape }
sub dtype  { AI::MXNet::Base::dtype_out($_[0]{_tensor}->dtype) }
sub stype  { 'default' }
sub ctx    { $_[0]->context }
sub ndim   { scalar @{ $_[0]->shape } }
sub len    { $_[0]->shape->[0] }
sub size   { my ($self, $shape) = @_; return AI::MXNet::Base::product(@{ $shape // $self->shape }) }

sub stringify { my ($self) = @_; return sprintf '<%s %s @%s>', ref $self, join('x', @{ $self->shape }), $self->context }

# Converts 16-bit floats to f32, because PDL has no such type.
sub _readable { my ($tensor) = @_; return $tensor->dtype =~ /\Ab?f16\z/ ? $tensor->cast('f32') : $tensor }
sub _here     { my ($tensor) = @_; return $tensor->info->{device} < 0 ? $tensor : $tensor->to('cpu') }

# A PDL of the values, for reading only: its memory may be this array's.
sub _any_pdl { my ($self) = @_; return _here(_readable($self->tostype('default')->tensor))->pdl }

# Changes the array by $change->(PDL of its values), which works in place.
sub _change_pdl {
    my ($self, $change) = @_;
    my $tensor = $self->tensor;
    my $values = _here(_readable($tensor));
    $change->($values->pdl);
    $tensor->assign($values) if $values->handle != $tensor->handle;
    return;
}

sub aspdl      { $_[0]->_any_pdl->copy }
sub aspdl_view { $_[0]->tensor->pdl }

sub asmpdl {
    my ($self) = @_;
    require PDL::Matrix;
    return PDL::Matrix->pdl($self->aspdl->unpdl);
}

sub asscalar {
    my ($self) = @_;
    refuse(ESHAPE => "$self can't be converted to a scalar: it does not have exactly one element") if $self->size != 1;
    return $self->tostype('default')->tensor->item;
}

# ------------------------------------------------------------------ views

sub _rows {
    my ($self, $begin, $end) = @_;
    return $self->_wrap($self->tensor->slice($begin, $end), share => 1);
}

# Converts an index, possibly negative, to a position from the front.
sub _position {
    my ($self, $axis, $index) = @_;
    my $length = $self->shape->[$axis];
    refuse(ERANGE => "index $index is out of range along axis $axis of $self") if $index >= $length || $index < -$length;
    return $index < 0 ? $index + $length : $index;
}

sub _at {
    my ($self, @index) = @_;
    refuse(EINVAL => 'at needs one index, or one per dimension') unless @index == 1 || @index == $self->ndim;
    return $self->_slice(@index) if @index > 1;
    my $row = $self->_position(0, $index[0]);
    return $self->_rows($row, $row + 1) if $self->ndim == 1;
    return $self->_wrap($self->tensor->row($row), share => 1);
}

# For a row or a range of rows, a view; for a box, a Slice; for lists of positions, a copy of the elements there; for
# begin => , end => , a copy.
sub _slice {
    my ($self, @slices) = @_;
    refuse(EINVAL => 'slice needs positions') unless @slices;
    return $self->_cut(@slices) if grep { !ref && /\A(?:begin|end|step)\z/ } $slices[0];
    return $self->_pick(@{ $slices[0] }) if ref $slices[0] eq 'ARRAY' && ref $slices[0][0];
    refuse(ESHAPE => "slice needs positions along the first dimension or along all dimensions, not along @{[scalar @slices]} of $self")
        unless @slices == 1 || @slices == $self->ndim;
    my (@begin, @end);
    for my $axis (0 .. $#slices) {
        my $slice = $slices[$axis];
        my ($from, $to, $stride) = ref $slice ? @$slice : $slice eq 'X' ? (0, -1) : ($slice);
        refuse(EINVAL => "stride $stride: slices must be contiguous") if ($stride // 1) > 1;
        ($from, $to) = map { $self->_position($axis, $_) } $from, $to // $from;
        refuse(ERANGE => "slice from $from to $to along axis $axis of $self: the end is before the start") if $from > $to;
        push @begin, $from;
        push @end,   $to + 1;
    }
    return $self->_rows($begin[0], $end[0]) if @slices == 1;
    return AI::MXNet::NDArray::Slice->new(parent => $self, begin => \@begin, end => \@end);
}

sub _cut {
    my ($self, @given) = @_;
    my %options = _options({ begin => 1, end => 1, step => 1 }, @given);
    my @shape = @{ $self->shape };
    my @box = map {
        my $from = $options{begin}[$_] // 0;
        my $to   = $options{end}[$_]   // $shape[$_];
        refuse(ERANGE => "slice from $from to $to along axis $_ of $self: its length is $shape[$_]") if $from > $shape[$_] || $to > $shape[$_];
        [$from, ($to <= 0 ? $to + $shape[$_] : $to) - 1, $options{step}[$_] // 1]
    } 0 .. $#shape;
    return $self->array($self->_any_pdl->slice(reverse @box), ctx => $self->context, dtype => $self->dtype);
}

sub _pick {
    my ($self, @lists) = @_;
    my $positions = PDL::cat(map { (blessed $_ ? $_->aspdl : PDL->pdl($_))->indx } reverse @lists)->transpose;
    return $self->array($self->_any_pdl->indexND($positions), ctx => $self->context, dtype => $self->dtype);
}

# In the new shape, 0 keeps a length, -1 is inferred, -2 keeps all remaining lengths, -3 joins two, and -4 splits one
# into the two that follow.
sub _reshape {
    my ($self, $shape, %how) = @_;
    my ($old, $new) = ([@{ $self->shape }], [ref $shape ? @$shape : $shape]);
    ($old, $new) = map { [reverse @$_] } $old, $new if $how{reverse};
    my @lengths;
    while (@$new) {
        my $code = shift @$new;
        if    ($code == -2) { push @lengths, splice @$old }
        elsif ($code == -3) { push @lengths, AI::MXNet::Base::product(splice @$old, 0, 2) }
        elsif ($code == -4) { push @lengths, _split(shift @$old, splice @$new, 0, 2) }
        else                { my $length = shift @$old; push @lengths, $code == 0 ? $length // 0 : $code }
    }
    @lengths = reverse @lengths if $how{reverse};
    return $self->_wrap($self->tensor->reshape(\@lengths), share => 1);
}

sub _split {
    my ($length, $first, $second) = @_;
    $first  = $length / $second if $first == -1;
    $second = $length / $first  if $second == -1;
    return ($first, $second);
}

sub _expand_dims {
    my ($self, $axis) = @_;
    my @shape = @{ $self->shape };
    splice @shape, $axis < 0 ? $axis + @shape + 1 : $axis, 0, 1;
    return $self->reshape(\@shape);
}

# These are lvalues, to be allowed on the left of .= and other assignment operators.
sub at          : lvalue { my $view = _at(@_);          $view }
sub slice       : lvalue { my $view = _slice(@_);       $view }
sub reshape     : lvalue { my $view = _reshape(@_);     $view }
sub expand_dims : lvalue { my $view = _expand_dims(@_); $view }

sub _list { my ($self) = @_; return [map { $self->at($_) } 0 .. $self->len - 1] }

# ------------------------------------------------------------------ copies

sub copyto {
    my ($self, $other) = @_;
    return $self->_wrap($self->tensor->to($other->_place), ctx => $other) if $other->isa('AI::MXNet::Context');
    my ($here, $there) = map { join 'x', @{ $_->shape } } $self, $other;
    refuse(ESHAPE => "$self can't be copied to $other") if $here ne $there;
    $other->_take_over($self);
    return $other;
}

# Copies the values from an array of the same shape.
sub _take_over { my ($self, $from) = @_; $self->tensor->assign($from->tostype('default')->tensor); return }

sub copy { my ($self) = @_; return $self->copyto($self->context) }
*sever = \&copy;

sub astype {
    my ($self, $dtype) = @_;
    return $self->_wrap($self->tensor->cast(AI::MXNet::Base::dtype_in($dtype)));
}

sub as_in_context { my ($self, $ctx) = @_; return $self->context == $ctx ? $self : $self->copyto($ctx) }

sub tostype {
    my ($self, $stype) = @_;
    return $self if $stype eq 'default';
    refuse(EINVAL => "stype '$stype': default or row_sparse is needed") if $stype ne 'row_sparse';
    return $self->_wrap($self->tensor->to_sparse);
}

# Storable, including dclone, copies the values, in the format of MXNet's files, with the context and `writable`.
sub STORABLE_freeze {
    my ($self) = @_;
    return (AI::MXNet::NDArray::File::to_bytes($self), [$self->context, $self->writable]);
}

sub STORABLE_thaw {
    my ($self, $cloning, $bytes, $about) = @_;
    my ($array) = @{ AI::MXNet::NDArray::File::from_bytes('the data from Storable', \$bytes) };
    %$self = (%{ $array->as_in_context($about->[0]) }, context => $about->[0], writable => $about->[1]);
    return;
}

sub set {
    my ($self, $value) = @_;
    refuse(EINVAL => 'no value to set was given') unless defined $value;
    refuse(ESTATE => "$self is not writable")    unless $self->writable;
    return $self->_set_number($value) if looks_like_number($value) && !ref $value;
    refuse(EDTYPE => "'$value' is neither a number nor an array") unless ref $value;
    $value = $self->array($value, dtype => $self->dtype) unless blessed $value && $value->isa(__PACKAGE__);
    return $value->copyto($self);
}

sub _set_number { my ($self, $value) = @_; $self->tensor->fill($value); return $self }

# These are lvalues in AI::MXNet, and therefore allowed on the left of .= and other assignment operators here too.
for my $name (qw(aspdl asmpdl copy sever astype as_in_context copyto empty ones full array T)) {
    my $code = __PACKAGE__->can($name);
    no strict 'refs';
    no warnings 'redefine';
    *$name = sub : lvalue { my $made = $code->(@_); $made };
}

__PACKAGE__->meta->make_immutable;

require AI::MXNet::NDArray::Sparse;
require AI::MXNet::Random;

sub sparse { 'AI::MXNet::NDArray::Sparse' }
sub random { 'AI::MXNet::Random' }

1;

__END__

=encoding utf8

=head1 NAME

AI::MXNet::NDArray - arrays of numbers

=head1 SYNOPSIS

    use AI::MXNet qw(mx);
    use PDL;

    my $a = mx->nd->array([[1, 2, 3], [4, 5, 6]]);
    my $b = $a;
    $b += 10;                                  # the same array
    $a->at(0) .= pdl([7, 8, 9]);
    print $a->aspdl;                           # [[7 8 9] [14 15 16]]
    print "@{ $a->shape } ", $a->dtype, ' ', $a->sum->asscalar, "\n";    # 2 3 float32 69
    $a->aspdl_view->slice('0') .= 0;           # the first column, in place
    mx->nd->save('/tmp/arrays.params', { weight => $a });
    print mx->nd->load('/tmp/arrays.params')->{weight}->T->aspdl;
    unlink '/tmp/arrays.params';

=head1 DESCRIPTION

A L<Polyverso::Tensor> with MXNet's interface. Shapes are row-major; the dims of piddles are in reverse order. Reading
an array waits for unfinished pulls into it. A failed call throws a L<Polyverso::Error>.

=head1 CONSTRUCTORS

Options are pairs or a hash: C<ctx>, C<dtype> (C<float32>, the default, C<float64>, C<float16>, C<bfloat16>, C<int64>,
C<int32>, C<int8>, C<uint8>), C<stype> (C<default> or C<row_sparse>), C<out>.

=head2 zeros($shape, %options), ones, empty, full($shape, $value, %options), zeros_like($array), ones_like($array)

C<empty> holds zeros.

=head2 array($source, ctx => , dtype => )

A copy of nested arrays, a PDL, a L<PDL::Matrix> or another array.

=head2 arange(start => 0, stop => , step => 1, repeat => 1)

The numbers from C<start> up to but not including C<stop>, each C<repeat> times.

=head2 concatenate([@arrays], axis => 0, always_copy => 1)

The arrays one after the other along an axis; their other lengths are equal.

=head2 sparse, random

The constructors in L<AI::MXNet::NDArray::Sparse> and L<AI::MXNet::Random>: C<< mx->nd->random->uniform(...) >>.

=head2 load($file), load_frombuffer($bytes), save($file, [@arrays] or {%arrays})

MXNet's own format: L<AI::MXNet::NDArray::File>.

=head1 METHODS

=head2 shape, dtype, context, stype, size, ndim, len, writable, handle, tensor

C<tensor> is the L<Polyverso::Tensor> that the array wraps.

=head2 aspdl, asmpdl, aspdl_view, asscalar

C<aspdl> copies the array to a PDL, which is of type float for 16-bit floats; C<asmpdl> copies it to a L<PDL::Matrix>;
C<aspdl_view> returns a PDL on the array's own memory, which it keeps alive; C<asscalar> returns the only element.

=head2 at($row), slice([$first, $last]), reshape($shape, reverse => 0), expand_dims($axis)

Views: writing to them writes to the array. C<slice> takes the first and last position, or one position, along the first
dimension. With positions for all dimensions (C<'X'> is a whole dimension) it returns an L<AI::MXNet::NDArray::Slice>.
Negative positions count from the end. C<reshape> accepts MXNet's 0, -1, -2, -3 and -4.

=head2 set($value), .=

Assigns a number, an array of the same shape, nested arrays or a PDL.

=head2 copy, sever, copyto($array or $context), astype($dtype), as_in_context($context), tostype($stype)

C<copy> and C<sever> copy the array. C<copyto> copies it into an array of the same shape, or to a context. C<astype>
converts to a dtype. C<as_in_context> is the array itself if it has the context. C<tostype> converts between C<default>
and C<row_sparse>.

=head2 wait_to_read, waitall

Wait until all pulls into this array, or into any array, have finished.

=head1 ARITHMETIC

L<AI::MXNet::NDArray::Operators>.

=cut
