package Polyverso::KVStore;

# Names and options only: the work is in the C functions.

use strict;
use warnings;

use Polyverso::CAPI ();
use Polyverso::Error;
use Polyverso::Table;
use Polyverso::Tensor;

sub create {
    my ($class, $type, $node) = @_;
    my $number = ref $node ? $node->handle : $node // 0;
    my $handle = Polyverso::CAPI::kv_create($number, $type // 'local');
    return bless { handle => $handle }, $class;
}

sub handle      { $_[0]{handle} }
sub type        { Polyverso::CAPI::kv_type($_[0]{handle}) }
sub rank        { Polyverso::CAPI::kv_rank($_[0]{handle}) }
sub num_workers { Polyverso::CAPI::kv_num_workers($_[0]{handle}) }

my %KNOWN = (timeout => 1);

sub _how {
    my (%how) = @_;
    Polyverso::Table::_check(\%how, \%KNOWN);
    return Polyverso::Table::_options(0, \%how);
}

sub init {
    my ($self, $keys, $values) = @_;
    Polyverso::CAPI::kv_init($self->{handle}, $keys, $values);
    return;
}

sub push {
    my ($self, $keys, $values, %how) = @_;
    Polyverso::CAPI::kv_push($self->{handle}, $keys, $values, _how(%how));
    return;
}

sub pull {
    my ($self, $keys, $out, %how) = @_;
    Polyverso::CAPI::kv_pull($self->{handle}, $keys, $out, _how(%how));
    return;
}

# Two calls, each of which goes on after a signal.
sub pushpull {
    my ($self, $keys, $values, $out, %how) = @_;
    $self->push($keys, $values, %how);
    return $self->pull($keys, $out // $values, %how);
}

sub broadcast {
    my ($self, $keys, $values, $out) = @_;
    Polyverso::CAPI::kv_broadcast($self->{handle}, $keys, $values, $out);
    return;
}

sub set_optimizer {
    my ($self, $optimizer) = @_;
    Polyverso::CAPI::kv_set_optimizer($self->{handle}, $optimizer);
    return;
}

sub barrier {
    my ($self, %how) = @_;
    Polyverso::CAPI::kv_barrier($self->{handle}, _how(%how));
    return;
}

sub leave {
    my ($self) = @_;
    Polyverso::CAPI::kv_leave($self->{handle});
    return;
}

sub free {
    my ($self) = @_;
    my $handle = delete $self->{handle};
    Polyverso::CAPI::kv_free($handle) if $handle;
    return;
}

sub DESTROY {
    my ($self) = @_;
    return if ${^GLOBAL_PHASE} eq 'DESTRUCT';
    local ($@, $!);
    eval { $self->free };    # a node that was shut down has taken its stores with it
    return;
}

1;

__END__

=encoding utf8

=head1 NAME

Polyverso::KVStore - tensors under keys, pushed by all workers, merged, updated, pulled

=head1 SYNOPSIS

    use Polyverso;
    use Polyverso::KVStore;

    my $class = 'Polyverso::Tensor';
    my $kv    = Polyverso::KVStore->create('local');
    my $value = $class->zeros([2, 3]);

    $kv->init(3, $class->full([2, 3], 2));
    $kv->push(3, $class->full([2, 3], 8));
    $kv->pull(3, $value);                                        # eights

    $kv->push(3, [map { $class->ones([2, 3]) } 1 .. 4]);         # four devices: their sum
    $kv->pull(3, $value);                                        # fours

    $kv->init(['w', 'b'], [$class->ones([2, 3]), $class->ones([3])]);
    $kv->set_optimizer('mx.sgd learning_rate=0.1');
    $kv->push(['w', 'b'], [$class->ones([2, 3]), $class->ones([3])]);

=head1 DESCRIPTION

A key-value store in the manner of MXNet's; F<docs/kvstore.md> tells what it promises, and F<polyverso/kvstore.h> what each
function does. L<AI::MXNet::KVStore> has MXNet's own interface to it.

Keys are names, one or a reference to an array of them; Perl does not tell 3 from C<'3'>, and nor does the store. Values
are L<Polyverso::Tensor> objects: of each key one, or, in an array of its own, one a device; those are summed up when they
are pushed, and all receive what is pulled. C<< Polyverso::Tensor->view($pdl) >> makes one upon a PDL's memory.

A failed call throws a L<Polyverso::Error>, and the store goes on. All calls take C<< timeout => $seconds >> where they
may wait.

=head1 METHODS

=head2 Polyverso::KVStore->create($type, $node)

C<local>, the default, needs nothing; C<dist_sync>, C<dist_async> and the other types of MXNet want a
C<< Polyverso->init >> first, or its C<$node>. Workers create their stores in the same order.

=head2 type, rank, num_workers, handle

=head2 init($keys, $values)

Brings keys into the store. Of dist types all workers call it; the values of worker 0 count.

=head2 push($keys, $values, %how)

What was pushed is a snapshot. Without an optimizer it replaces the value; in a C<dist_sync> store when all workers have
pushed.

=head2 pull($keys, $out, %how)

Into C<$out>, with this worker's earlier pushes.

=head2 pushpull($keys, $values, $out, %how), broadcast($keys, $values, $out)

C<push> or C<init>, and then C<pull>; without C<$out> into C<$values>.

=head2 set_optimizer($text)

Of all keys, C<'mx.adam learning_rate=0.001'>; F<docs/optimizers.md> has the list. One worker calls it before the pushes that
it is for.

=head2 barrier(%how)

Returns when all workers have called it.

=head2 leave

This worker pushes no more: rounds go on without it.

=head2 free

Gives the store back now, rather than with its last reference.

=cut
