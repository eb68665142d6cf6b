package AI::MXNet::NDArray::Operators;

# Arithmetic of AI::MXNet::NDArray: operators, and functions that are also methods, as in
# AI::MXNet::NDArray->sqrt($x, { out => $y }) and $x->sqrt.

use strict;
use warnings;

use AI::MXNet::Base ();
use List::Util ();
use Polyverso::Tensor;
use Scalar::Util qw(blessed looks_like_number);

my $CLASS = 'AI::MXNet::NDArray';

sub _refuse { goto &AI::MXNet::Base::refuse }

# ------------------------------------------------------------------ operands

# Converts an operand for mv_tensor_binary: to a number or a dense tensor. PDLs and lists go to the context of $like, if that is an array.
sub _operand {
    my ($value, $like) = @_;
    return $value if !ref $value && looks_like_number($value);
    _refuse(EDTYPE => '"' . ($value // 'undef') . '" is neither a number nor an array') unless ref $value;
    $value = $value->sever if blessed $value && $value->isa('AI::MXNet::NDArray::Slice');
    $value = $CLASS->array($value, ctx => blessed $like && $like->can('context') ? $like->context : undef)
        unless blessed $value && $value->isa($CLASS);
    return $value->tostype('default')->tensor;
}

sub _is_sparse { return ref $_[0] && blessed $_[0] && $_[0]->isa('AI::MXNet::NDArray::Sparse') }

# Returns a result: in `out`, or in a new array with the context of the first operand that is an array.
sub _give {
    my ($tensor, $dtype, $out, @operands) = @_;
    $tensor = $tensor->cast($dtype) if $tensor->dtype ne $dtype;
    my ($like) = grep { blessed $_ && $_->can('context') } @operands;
    my $made = ($like // $CLASS)->_wrap($tensor);
    return defined $out ? $made->copyto($out) : $made;
}

# Splits the arguments of a function that was called on the class or on an array into operands and options.
sub _arguments {
    my ($count, @given) = @_;
    shift @given unless blessed $given[0];
    my @operands = splice @given, 0, $count;
    return (\@operands, map { ref $_ eq 'HASH' ? %$_ : $_ } @given);
}

# ------------------------------------------------------------------ two operands

my %COMPARES = map { $_ => 1 } qw(EQ NE LT LE GT GE);

# Results keep the operands' dtype: a comparison of floats gives floats, a quotient of integers gives integers.
sub _binary {
    my ($op, $first, $second, $out) = @_;
    my ($x, $y) = (_operand($first, $second), _operand($second, $first));
    my $made = ref $x ? $x->_binary(Polyverso::Tensor::_constant($op), $y, 0)
        : ref $y      ? $y->_binary(Polyverso::Tensor::_constant($op), $x, 1)
        :               _refuse(EDTYPE => 'one of two operands must be an array');
    my $dtype = !$COMPARES{$op} && $op ne 'DIV' ? $made->dtype : _common($x, $y);
    my $result = _give($made, $dtype, undef, $first, $second);
    $result = $result->tostype('row_sparse') if _stays_sparse($op, $first, $second);
    return defined $out ? $result->copyto($out) : $result;
}

# The common dtype of two operands.
sub _common {
    my ($x, $y) = @_;
    return (ref $x ? $x : $y)->dtype unless ref $x && ref $y && $x->dtype ne $y->dtype;
    return Polyverso::Tensor->zeros([0], $x->dtype)->_binary(Polyverso::Tensor::_constant('ADD'),
        Polyverso::Tensor->zeros([0], $y->dtype), 0)->dtype;
}

sub _stays_sparse {
    my ($op, $first, $second) = @_;
    return $op eq 'ADD' || $op eq 'SUB' if _is_sparse($first) && _is_sparse($second);
    return _is_sparse($first) && !ref $second && ($op eq 'MUL' || $op eq 'DIV');
}

# The remainder of a division that is rounded down: it has the divisor's sign.
sub _modulo {
    my ($first, $second, $out) = @_;
    my $quotient = _binary(DIV => map { ref $_ ? $_->astype('float64') : $_ } $first, $second);
    my $whole    = $quotient->astype('int64')->astype('float64');
    my $floor    = $whole - ($whole > $quotient);
    my $rest     = $first - $floor * $second;
    my $dtype    = _common(map { _operand($_) } $first, $second);
    return _give($rest->tensor, $dtype, $out, $first, $second);
}

# ------------------------------------------------------------------ one operand

sub _unary {
    my ($op, $array, $out) = @_;
    my $tensor = _operand($array);
    return _give($tensor->_unary($op), $tensor->dtype, $out, $array);
}

sub _clip {
    my ($array, $least, $most, $out) = @_;
    my $tensor = _operand($array);
    return _give($tensor->maximum($least)->minimum($most), $tensor->dtype, $out, $array);
}

sub _sign {
    my ($array, $out) = @_;
    my $tensor = _operand($array);
    return _give(($tensor > 0)->cast('f32') - ($tensor < 0)->cast('f32'), $tensor->dtype, $out, $array);
}

# Reduces along one axis, several axes, or all. The result has at least one dimension.
sub _reduce {
    my ($op, $array, %options) = @_;
    my $tensor = _operand($array);
    my $dtype  = $op =~ /\AARG/ ? 'f32' : $tensor->dtype;
    my @shape  = @{ $tensor->shape };
    my $axis   = $options{axis};
    my @axes   = !defined $axis ? () : sort { $b <=> $a } map { $_ < 0 ? $_ + @shape : $_ } ref $axis ? @$axis : $axis;
    my $made   = @axes ? $tensor : $tensor->_reduce($op);
    $made = $made->_reduce($op, $_) for @axes;
    my @left = @{ $made->shape };
    if ($options{keepdims}) {
        my %gone = map { $_ => 1 } @axes ? @axes : 0 .. $#shape;
        @left = map { $gone{$_} ? 1 : $shape[$_] } 0 .. $#shape;
    }
    $made = $made->reshape(@left ? \@left : [1]);
    return _give($made, $dtype, $options{out}, $array);
}

# ------------------------------------------------------------------ matrices

sub _dot {
    my ($x, $y, %options) = @_;
    my ($a, $b) = (_operand($x, $y), _operand($y, $x));
    return _give(Polyverso::Tensor->full([1], $a->dot($b), $a->dtype), $a->dtype, $options{out}, $x)
        if $a->dims == 1 && $b->dims == 1;
    my $vector = $b->dims == 1;
    $b = $b->reshape([-1, 1]) if $vector;
    my $wide = $a->dtype eq 'f64' ? 'f64' : 'f32';
    my $made = $a->cast($wide)->matmul($b->cast($wide), map { $_ => $options{$_} } qw(transpose_a transpose_b));
    return _give($vector ? $made->reshape([-1]) : $made, $a->dtype, $options{out}, $x);
}

sub _transpose {
    my ($array, %options) = @_;
    my $axes = $options{axes};
    return _give(_operand($array)->transpose, _operand($array)->dtype, $options{out}, $array) if $array->ndim == 2 && !$axes;
    my $last = $array->ndim - 1;
    $axes //= [reverse 0 .. $last];
    my $turned = $array->_any_pdl->reorder(map { $last - $_ } reverse @$axes);
    return $array->array($turned, ctx => $array->context, dtype => $array->dtype);
}

sub _move_axis {
    my ($array, $from, $to) = @_;
    my @axes = 0 .. $array->ndim - 1;
    $_ < 0 and $_ += @axes for $from, $to;
    splice @axes, $to, 0, splice @axes, $from, 1;
    return _transpose($array, axes => \@axes);
}

sub _broadcast_to {
    my ($array, $shape) = @_;
    my $made = Polyverso::Tensor->zeros($shape, _operand($array)->dtype);
    $made->assign(_operand($array));
    return _give($made, $made->dtype, undef, $array);
}

sub _split_into {
    my ($array, %options) = @_;
    my $axis = $options{axis} // 1;
    my ($length, $count) = ($array->shape->[$axis], $options{num_outputs});
    _refuse(EINVAL => 'split: num_outputs is ' . ($count // 'missing') . ", which does not divide the length $length of axis $axis of $array")
        if ($count // 0) < 1 || $length % $count;
    my $step = $length / $count;
    my @parts = map {
        my (@begin, @end) = (0) x $array->ndim;
        @end = @{ $array->shape };
        ($begin[$axis], $end[$axis]) = ($_ * $step, ($_ + 1) * $step);
        AI::MXNet::NDArray::Slice->new(parent => $array, begin => \@begin, end => \@end)->sever
    } 0 .. $options{num_outputs} - 1;
    return \@parts unless $options{squeeze_axis};
    my @shape = @{ $array->shape };
    splice @shape, $axis, 1;
    return [map { $_->reshape([@shape ? @shape : 1]) } @parts];
}

# ------------------------------------------------------------------ method names

my %BINARY = (
    ADD => [qw(add broadcast_add broadcast_plus elemwise_add _plus_scalar)],
    SUB => [qw(subtract broadcast_sub broadcast_minus elemwise_sub _minus_scalar)],
    MUL => [qw(multiply broadcast_mul elemwise_mul _mul_scalar)],
    DIV => [qw(divide true_divide broadcast_div elemwise_div _div_scalar)],
    POW => [qw(power broadcast_power _power_scalar)],
    MAX => [qw(maximum broadcast_maximum _maximum_scalar)],
    MIN => [qw(minimum broadcast_minimum _minimum_scalar)],
    EQ  => [qw(equal broadcast_equal _equal_scalar)],
    NE  => [qw(not_equal broadcast_not_equal _not_equal_scalar)],
    LT  => [qw(lesser broadcast_lesser _lesser_scalar)],
    LE  => [qw(lesser_equal broadcast_lesser_equal _lesser_equal_scalar)],
    GT  => [qw(greater broadcast_greater _greater_scalar)],
    GE  => [qw(greater_equal broadcast_greater_equal _greater_equal_scalar)],
);
my %UNARY = (SQRT => ['sqrt'], EXP => ['exp'], LOG => ['log'], ABS => ['abs'], NEG => ['negative']);
my %REDUCE = (SUM => [qw(sum sum_axis)], MEAN => ['mean'], LEAST => [qw(min min_axis)], GREATEST => [qw(max max_axis)],
    ARGMIN => ['argmin'], ARGMAX => ['argmax'], NORM => ['norm']);

sub _name {
    my ($code, @names) = @_;
    no strict 'refs';
    *{"${CLASS}::$_"} = $code for @names;
    return;
}

for my $op (keys %BINARY) {
    _name(sub { my ($xy, %how) = _arguments(2, @_); _binary($op, @$xy, $how{out}) }, @{ $BINARY{$op} });
}
for my $op (keys %UNARY) {
    _name(sub { my ($x, %how) = _arguments(1, @_); _unary($op, @$x, $how{out}) }, @{ $UNARY{$op} });
}
for my $op (keys %REDUCE) {
    _name(sub { my ($x, @how) = _arguments(1, @_); _reduce($op, @$x, @how % 2 ? ('axis', @how) : @how) }, @{ $REDUCE{$op} });
}
_name(sub { my ($xy, %how) = _arguments(2, @_); _modulo(@$xy, $how{out}) }, qw(modulo broadcast_mod _mod_scalar));
_name(sub { my ($x, %how) = _arguments(1, @_); _binary(MUL => @$x, @$x, $how{out}) }, 'square');
_name(sub { my ($x, %how) = _arguments(1, @_); _sign(@$x, $how{out}) }, 'sign');
_name(sub { my ($x, %how) = _arguments(1, @_); _transpose(@$x, %how) }, 'transpose');
_name(sub { my ($x, $to) = _arguments(1, @_); _broadcast_to(@$x, ref $to ? $to : $_[-1]) }, 'broadcast_to');
_name(sub { my ($xy, %how) = _arguments(2, @_); _dot(@$xy, %how) }, 'dot');
_name(sub { my ($x, %how) = _arguments(1, @_); _split_into(@$x, %how) }, 'split');
_name(sub { my ($xy) = _arguments(3, @_); _move_axis(@$xy) }, 'moveaxis');
_name(
    sub {
        my ($x, @how) = _arguments(1, @_);
        my @bounds = @how && looks_like_number($how[0]) ? splice @how, 0, 2 : ();
        my %how = @how;
        _clip(@$x, $bounds[0] // $how{a_min}, $bounds[1] // $how{a_max}, $how{out});
    },
    'clip'
);
_name(
    sub {
        my ($self) = @_;
        _refuse(ESHAPE => "$self is not a matrix: T needs at most 2 dimensions") if $self->ndim > 2;
        return $self->ndim == 2 ? $self->transpose : $self->copy;
    },
    'T'
);

sub _operator { my ($op) = @_; return sub { _binary($op, $_[2] ? @_[1, 0] : @_[0, 1]) } }

# An in-place operator: other references to the array see the change too.
sub _in_place {
    my ($op) = @_;
    return sub {
        my ($self, $other) = @_;
        _refuse(ESTATE => "$self is not writable") unless $self->writable;
        $self->_compute($op, $other);
        return $self;
    };
}
_name(
    sub {
        my ($self, $op, $other) = @_;
        my $tensor = $self->tensor;
        return $tensor->_binary(Polyverso::Tensor::_constant($op), _operand($other, $self), 0, $tensor);
    },
    '_compute'
);

package AI::MXNet::NDArray;

use overload
    '+'    => AI::MXNet::NDArray::Operators::_operator('ADD'),
    '-'    => AI::MXNet::NDArray::Operators::_operator('SUB'),
    '*'    => AI::MXNet::NDArray::Operators::_operator('MUL'),
    '/'    => AI::MXNet::NDArray::Operators::_operator('DIV'),
    '**'   => AI::MXNet::NDArray::Operators::_operator('POW'),
    '=='   => AI::MXNet::NDArray::Operators::_operator('EQ'),
    '!='   => AI::MXNet::NDArray::Operators::_operator('NE'),
    '<'    => AI::MXNet::NDArray::Operators::_operator('LT'),
    '<='   => AI::MXNet::NDArray::Operators::_operator('LE'),
    '>'    => AI::MXNet::NDArray::Operators::_operator('GT'),
    '>='   => AI::MXNet::NDArray::Operators::_operator('GE'),
    '%'    => sub { AI::MXNet::NDArray::Operators::_modulo($_[2] ? @_[1, 0] : @_[0, 1]) },
    '+='   => AI::MXNet::NDArray::Operators::_in_place('ADD'),
    '-='   => AI::MXNet::NDArray::Operators::_in_place('SUB'),
    '*='   => AI::MXNet::NDArray::Operators::_in_place('MUL'),
    '/='   => AI::MXNet::NDArray::Operators::_in_place('DIV'),
    '**='  => AI::MXNet::NDArray::Operators::_in_place('POW'),
    '%='   => sub { AI::MXNet::NDArray::Operators::_modulo(@_[0, 1])->copyto($_[0]) },
    '.='   => sub { $_[0]->set($_[1]) },
    'neg'  => sub { $_[0]->negative },
    'abs'  => sub { AI::MXNet::NDArray->abs($_[0]) },
    'sqrt' => sub { AI::MXNet::NDArray->sqrt($_[0]) },
    'exp'  => sub { AI::MXNet::NDArray->exp($_[0]) },
    'log'  => sub { AI::MXNet::NDArray->log($_[0]) },
    'bool' => sub { 1 },
    '""'   => sub { $_[0]->stringify },
    '@{}'  => sub { $_[0]->_list },
    '='    => sub { $_[0] };

1;

__END__

=encoding utf8

=head1 NAME

AI::MXNet::NDArray::Operators - arithmetic of arrays

=head1 SYNOPSIS

    use AI::MXNet qw(mx);

    my $a = mx->nd->array([[1, -2], [3, 4]]);
    my $alias = $a;
    $alias *= 2;                                                  # $a, too
    print +($a + mx->nd->array([10, 20]))->aspdl;                 # [[12 16] [16 28]]
    print +($a > 0)->aspdl;                                       # [[1 0] [1 1]]
    print mx->nd->clip($a, -1, 5)->aspdl, $a->sum(axis => 0)->aspdl, "\n";
    print mx->nd->dot($a, $a->T)->aspdl;
    $_ += 100 for @$a;                                            # row by row
    print $a->max->asscalar, "\n";                                # 108

=head1 DESCRIPTION

C<+ - * / % **>, comparisons, their in-place forms, C<.=>, C<neg abs sqrt exp log>. Shapes are broadcast. Results keep
the operands' dtype: comparisons of floats give floats, a quotient of integers is truncated to an integer. An operation
of an integer array with a number that is not an integer is an error. C<=> does not copy: C<+=> through another
reference to an array changes it.

Functions are also methods, C<< mx->nd->sqrt($a, { out => $b }) >> and C<< $a->sqrt >>:
C<sqrt exp log abs negative square sign clip>, C<maximum minimum>, C<sum mean max min argmax argmin norm> (C<axis>,
C<keepdims>), C<dot> (C<transpose_a>, C<transpose_b>), C<transpose> (C<axes>), C<T>, C<moveaxis>, C<broadcast_to>,
C<split>, and MXNet's names of the operators: C<add>, C<broadcast_add>, C<elemwise_add> and so on.

=cut
