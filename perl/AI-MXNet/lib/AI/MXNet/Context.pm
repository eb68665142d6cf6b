package AI::MXNet::Context;

use Mouse;
use Mouse::Util::TypeConstraints qw(enum);

use AI::MXNet::NS;
use Polyverso::CAPI ();
use Polyverso::Error;
use Scalar::Util qw(blessed);

my %TYPE_ID = (cpu => 1, gpu => 2, cpu_pinned => 3);

has device_type => (is => 'rw', isa => enum([sort keys %TYPE_ID]), default => 'cpu');
has device_id   => (is => 'rw', default => 0);

use overload
    '==' => sub { $_[0]->_is($_[1]) },
    'eq' => sub { $_[0]->_is($_[1]) },
    '!=' => sub { !$_[0]->_is($_[1]) },
    'ne' => sub { !$_[0]->_is($_[1]) },
    '""' => sub { $_[0]->_name },
    bool => sub { 1 };

# Also accepts new('cpu'), new('cpu', 2) and new($context).
around BUILDARGS => sub {
    my ($build, $class, @arguments) = @_;
    return $class->$build(@arguments) unless @arguments && @arguments <= 2;
    my ($first, $id) = @arguments;
    return $class->$build(device_type => $first->device_type, device_id => $first->device_id) if blessed $first;
    return $class->$build(@arguments) if ref $first || !$TYPE_ID{$first};
    return $class->$build(device_type => $first, device_id => $id // 0);
};

sub BUILD {
    my ($self) = @_;
    my ($type, $id) = ($self->device_type, $self->device_id);
    Polyverso::Error->throw($Polyverso::CAPI::MV_EINVAL, "mx->$type(" . ($id // 'undef') . "): a device has a number, from 0")
        unless defined $id && !ref $id && $id =~ /\A[0-9]{1,9}\z/;
    return;
}

# As in MXNet, a context of a device that is missing is no error. Its first array is, and says what to do.

# The number of the device of arrays in this context, as Polyverso::Tensor has it.
sub _place { my ($self) = @_; return $self->device_type eq 'gpu' ? $self->device_id : $Polyverso::CAPI::MV_HOST }

# The context of a tensor's memory.
sub _of_place { my ($class, $number) = @_; return $number < 0 ? $class->current_ctx : $class->gpu($number) }

sub _is {
    my ($self, $other) = @_;
    my $name = blessed $other && $other->isa(__PACKAGE__) ? $other->_name : $other // q();
    return $self->_name eq $name;
}

sub _name { my ($self) = @_; return $self->device_type . '(' . $self->device_id . ')' }

sub device_type_id { $TYPE_ID{ $_[0]->device_type } }

sub cpu        { my ($class, $id) = @_; return __PACKAGE__->new(device_type => 'cpu',        device_id => $id // 0) }
sub cpu_pinned { my ($class, $id) = @_; return __PACKAGE__->new(device_type => 'cpu_pinned', device_id => $id // 0) }
sub gpu        { my ($class, $id) = @_; return __PACKAGE__->new(device_type => 'gpu',        device_id => $id // 0) }
sub num_gpus   { Polyverso::CAPI::mv_device_count() }
sub deepcopy   { my ($self) = @_; return __PACKAGE__->new($self) }

my $current = __PACKAGE__->new;
sub current_ctx { $current }
*current_context = \&current_ctx;

__PACKAGE__->meta->make_immutable;

1;

__END__

=encoding utf8

=head1 NAME

AI::MXNet::Context - the device of an array

=head1 SYNOPSIS

    use AI::MXNet qw(mx);

    my $a = mx->nd->ones([2, 3], ctx => mx->cpu(1));
    print $a->context, "\n";                            # cpu(1)
    print "elsewhere\n" if $a->context != mx->cpu(0);

=head1 DESCRIPTION

Arrays of C<< mx->gpu(0) >>, C<< mx->gpu(1) >> and so on are in the memory of CUDA devices, which compute on them; the
first array of a device throws a L<Polyverso::Error>, C<MV_ENOSYS>, that says what to do where the plug-in for CUDA, the
driver or the device is missing. F<docs/cuda.md> describes what devices do.

All other arrays are in the host's memory: C<< mx->cpu(0) >>, C<< mx->cpu(1) >> and so on are names of nominal devices,
and a store sums arrays of several of them like arrays of several cards.

=head1 METHODS

=head2 cpu($id), cpu_pinned($id), gpu($id), current_ctx, current_context, num_gpus

Contexts of these kinds, with the number C<$id>, 0 by default; C<current_ctx> and C<current_context> are the default
one, C<cpu(0)>. C<num_gpus> is the number of CUDA devices, 0 without the plug-in or a driver.

=head2 device_type, device_id, device_type_id, deepcopy

The kind as text, C<cpu>, C<cpu_pinned> or C<gpu>; the number; MXNet's number of the kind; a copy.

=cut
