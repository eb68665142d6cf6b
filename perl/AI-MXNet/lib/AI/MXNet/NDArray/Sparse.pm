package AI::MXNet::NDArray::Sparse;

# Row-sparse arrays, which store only some rows; the other rows are zero. As mx->nd->sparse, their constructors.

use Mouse;

use AI::MXNet::Base ();
use AI::MXNet::NDArray;
use Polyverso::Tensor;
use Scalar::Util qw(blessed);

extends 'AI::MXNet::NDArray';

*_refuse = \&AI::MXNet::Base::refuse;

my %CREATE = map { $_ => 1 } qw(ctx dtype out shape name);

# A row-sparse tensor without any rows.
sub _nothing {
    my ($shape, $dtype) = @_;
    my ($height, @row) = @$shape;
    return Polyverso::Tensor->sparse([], Polyverso::Tensor->zeros([0, @row], AI::MXNet::Base::dtype_in($dtype)), $height);
}

sub _check_stype {
    my ($stype) = @_;
    _refuse(EINVAL => "stype '$stype': row_sparse or default is needed") if $stype !~ /\A(?:row_sparse|default)\z/;
    return $stype;
}

sub zeros {
    my ($class, $stype, $shape, @given) = @_;
    return AI::MXNet::NDArray->zeros($stype, $shape, @given) if ref $stype;    # as for a dense array: shape first
    return AI::MXNet::NDArray->zeros($shape, @given) if _check_stype($stype) eq 'default';
    my %options = AI::MXNet::NDArray::_options(\%CREATE, @given);
    my $made = AI::MXNet::NDArray->_wrap(_nothing($shape, $options{dtype}), ctx => $options{ctx});
    return $options{out} ? $made->copyto($options{out}) : $made;
}
*empty = \&zeros;

# Makes an array of [data, indices] with shape =>, of a shape, or of an array, sparse or dense.
sub row_sparse_array {
    my ($class, $source, @given) = @_;
    my %options = AI::MXNet::NDArray::_options(\%CREATE, @given);
    my %keep = map { exists $options{$_} ? ($_ => $options{$_}) : () } qw(ctx dtype);
    $source = $options{shape} unless defined $source;
    if (ref $source eq 'ARRAY') {
        return $class->zeros('row_sparse', $source, %keep) unless grep { ref } @$source;
        _refuse(EINVAL => 'row_sparse_array needs [data, indices], a shape, or an array') if @$source != 2;
        return $class->_of_rows(@$source, %options);
    }
    return $class->array($source, %keep) if blessed $source && $source->isa(__PACKAGE__);
    $keep{dtype} //= $source->dtype if blessed $source;
    return AI::MXNet::NDArray->array($source, %keep)->tostype('row_sparse');
}

sub _of_rows {
    my ($class, $data, $indices, %options) = @_;
    my $dtype = $options{dtype} // (blessed $data ? $data->dtype : undef) // 'float32';
    my $values = AI::MXNet::NDArray->array($data, dtype => $dtype)->tensor;
    my $ids = AI::MXNet::NDArray->array($indices, dtype => 'int64')->tensor->reshape([-1]);
    my $shape = $options{shape};
    _refuse(ESHAPE => 'row_sparse_array without any indices needs a shape') if !$shape && !$ids->count;
    my $height = $shape ? $shape->[0] : $ids->max->item + 1;
    # The lengths of a row come from the shape; an empty list of rows has none.
    $values = $values->reshape([$ids->count, @$shape[1 .. $#$shape]]) if $shape;
    return AI::MXNet::NDArray->_wrap(Polyverso::Tensor->sparse($ids, $values, $height), ctx => $options{ctx});
}

sub array {
    my ($class, $source, @given) = @_;
    return AI::MXNet::NDArray->array($source, @given) unless blessed $source && $source->isa(__PACKAGE__);
    my %options = AI::MXNet::NDArray::_options({ ctx => 1, dtype => 1 }, @given);
    my $made = $source->astype($options{dtype} // $source->dtype);
    return $options{ctx} ? $made->copyto($options{ctx}) : $made;
}

sub csr_matrix { _refuse(ENOSYS => 'csr arrays are not supported: use row_sparse_array for the rows of a gradient') }

# Keeps only the rows with these ids.
sub retain {
    my ($class, @operands) = @_;
    unshift @operands, $class if ref $class;
    my ($array, $ids) = @operands;
    $ids = AI::MXNet::NDArray->array($ids, dtype => 'int64')->tensor->reshape([-1]);
    return $array->_wrap($array->tensor->take($ids));
}

# ------------------------------------------------------------------ arrays

sub stype    { 'row_sparse' }
sub _num_aux { 1 }

# A tensor of the same ids and of changed values, possibly of another dtype.
sub _rebuilt {
    my ($self, $change) = @_;
    my ($ids, $values) = $self->tensor->parts;
    return Polyverso::Tensor->sparse($ids, $change->($values), $self->shape->[0]);
}

sub indices { my ($self) = @_; return AI::MXNet::NDArray->_wrap(($self->tensor->parts)[0]->copy, ctx => $self->context) }
sub data    { my ($self) = @_; return AI::MXNet::NDArray->_wrap(($self->tensor->parts)[1]->copy, ctx => $self->context) }

sub astype {
    my ($self, $dtype) = @_;
    my $name = AI::MXNet::Base::dtype_in($dtype);
    return $self->_wrap($self->_rebuilt(sub { $_[0]->cast($name) }));
}

sub tostype {
    my ($self, $stype) = @_;
    return $self if _check_stype($stype) eq 'row_sparse';
    return AI::MXNet::NDArray->_wrap($self->tensor->to_dense, ctx => $self->context);
}

sub copyto {
    my ($self, $other) = @_;
    return $self->_wrap($self->_rebuilt(sub { $_[0] }), ctx => $other) if $other->isa('AI::MXNet::Context');
    return $self->SUPER::copyto($other);
}

# Copies an array's values, converted to this array's dtype. Afterwards this array stores the rows of that one.
sub _take_over { my ($self, $from) = @_; $self->tensor->assign($from->tostype('row_sparse')->tensor); return }

sub _set_number {
    my ($self, $value) = @_;
    $self->_take_over(AI::MXNet::NDArray->full($self->shape, $value, dtype => $self->dtype));
    return $self;
}

sub _compute {
    my ($self, $op, $other) = @_;
    $self->_take_over(AI::MXNet::NDArray::Operators::_binary($op, $self, $other));
    return;
}

sub _change_pdl {
    my ($self, $change) = @_;
    my $dense = $self->tostype('default');
    $dense->_change_pdl($change);
    $self->_take_over($dense);
    return;
}

# There are no views, because a row may not be stored.
for my $name (qw(at slice reshape aspdl_view)) {
    no strict 'refs';
    *{$name} = sub : lvalue { my $none = _refuse(EINVAL => "$name needs a dense array: use ->tostype('default') of $_[0]") };
}

__PACKAGE__->meta->make_immutable;

package AI::MXNet::NDArray::RowSparse;

use Mouse;

extends 'AI::MXNet::NDArray::Sparse';

__PACKAGE__->meta->make_immutable;

1;

__END__

=encoding utf8

=head1 NAME

AI::MXNet::NDArray::Sparse - row-sparse arrays, which store only some of their rows

=head1 SYNOPSIS

    use AI::MXNet qw(mx);

    my $rows = mx->nd->sparse->row_sparse_array([[[1, 2], [3, 4]], [1, 4]], shape => [6, 2]);
    print $rows->indices->aspdl, $rows->data->aspdl;       # [1 4] [[1 2] [3 4]]
    print $rows->aspdl;                                    # all six rows
    my $none = mx->nd->sparse->zeros('row_sparse', [6, 2]);
    $none += $rows;
    print mx->nd->sparse->retain($none, [4, 5])->indices->aspdl;    # [4]
    print $none->tostype('default')->stype, "\n";                   # default

=head1 CONSTRUCTORS

=head2 zeros('row_sparse', $shape, ctx => , dtype => ), empty

An array that stores no rows. With C<'default'> it is a dense array of zeros.

=head2 row_sparse_array($source, shape => , ctx => , dtype => )

Makes an array of C<[$data, $indices]>, with indices in any order and the data of repeated ones summed; of a shape; or
of an array or a PDL.

=head2 array($source), retain($array, $indices), csr_matrix

C<array> copies an array, sparse or dense. C<retain> keeps only the rows with these ids.
C<csr_matrix> is an error: arrays of that kind do not exist.

=head1 METHODS

Those of L<AI::MXNet::NDArray> except views, and:

=head2 stype, astype($dtype), tostype($stype), copyto($array or $context)

As of dense arrays; the stored rows stay the same.

=head2 at, slice, reshape, aspdl_view

Views, which are an error: a row may not be stored. Use C<< ->tostype('default') >> first.

=head2 indices, data

Copies of the ids of the stored rows, ascending, C<int64>, and of these rows.

=head2 AI::MXNet::NDArray::RowSparse

The class of a row-sparse array.

=cut
