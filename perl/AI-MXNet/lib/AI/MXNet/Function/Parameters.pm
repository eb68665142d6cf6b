package AI::MXNet::Function::Parameters;

# `method` and `func` with typed parameters, for classes written for AI::MXNet. Function::Parameters implements them.

use strict;
use warnings;

use Function::Parameters ();
use Mouse::Util::TypeConstraints;

use AI::MXNet::Base qw(DTYPE_STR_TO_MX);

# AI::MXNet's type names.
class_type $_ for qw(PDL AI::MXNet::NDArray AI::MXNet::NDArray::Slice AI::MXNet::NDArray::RowSparse AI::MXNet::Context
    AI::MXNet::Optimizer AI::MXNet::LRScheduler AI::MXNet::Updater AI::MXNet::KVStore);
subtype Index           => as 'Int';
subtype DimSize         => as 'Int' => where { $_ >= 0 };
subtype Shape           => as 'ArrayRef[DimSize]';
subtype Dtype           => as 'Str' => where { exists DTYPE_STR_TO_MX->{$_} };
subtype Stype           => as 'Str' => where { /\A(?:default|row_sparse)\z/ };
subtype AcceptableInput => as 'Num|PDL|AI::MXNet::NDArray|AI::MXNet::NDArray::Slice|ArrayRef';
subtype Updater         => as 'AI::MXNet::Updater|CodeRef';

sub import {
    my %with = (runtime => 1, reify_type => \&Mouse::Util::TypeConstraints::find_or_create_isa_type_constraint);
    return Function::Parameters->import({
        func   => { defaults => 'function_strict', %with },
        method => { defaults => 'method_strict',   %with },
    });
}

1;

__END__

=encoding utf8

=head1 NAME

AI::MXNet::Function::Parameters - C<method> and C<func>, for classes written for AI::MXNet

=head1 SYNOPSIS

    use AI::MXNet qw(mx);

    package Follow;
    use Mouse;
    use AI::MXNet::Function::Parameters;
    extends 'AI::MXNet::Optimizer';
    method create_state(Index $index, AI::MXNet::NDArray $weight) { return undef }
    method update(Index $index, AI::MXNet::NDArray $weight, AI::MXNet::NDArray $grad, $state) { $weight -= $self->_get_lr($index) * $grad }
    __PACKAGE__->register;

    package main;
    my $weight = mx->nd->ones([2]);
    mx->optimizer->create('follow', learning_rate => 1)->update(0, $weight, mx->nd->ones([2]), undef);
    print $weight->aspdl, "\n";                          # [0 0]

=head1 DESCRIPTION

L<Function::Parameters> (in Debian C<libfunction-parameters-perl>) with AI::MXNet's type names. No other module of this
library needs it.

=cut
