package Polyverso::Node;

use strict;
use warnings;

use JSON::PP ();
use Polyverso::CAPI ();
use Polyverso::Request;
use Polyverso::Table;
use Polyverso::Values;

sub _new {
    my ($class, $handle) = @_;
    return bless { handle => $handle }, $class;
}

sub handle      { $_[0]{handle} }
sub rank        { Polyverso::CAPI::mv_rank($_[0]{handle}) }
sub size        { Polyverso::CAPI::mv_size($_[0]{handle}) }
sub worker_id   { Polyverso::CAPI::mv_worker_id($_[0]{handle}) }
sub num_workers { Polyverso::CAPI::mv_num_workers($_[0]{handle}) }
sub server_id   { Polyverso::CAPI::mv_server_id($_[0]{handle}) }
sub num_servers { Polyverso::CAPI::mv_num_servers($_[0]{handle}) }
sub is_master   { Polyverso::CAPI::mv_is_master($_[0]{handle}) }
sub is_sync     { Polyverso::CAPI::mv_is_sync($_[0]{handle}) }
sub event_fd    { Polyverso::CAPI::mv_event_fd($_[0]{handle}) }
sub shutdown    { Polyverso::CAPI::mv_shutdown($_[0]{handle}) }

sub poll {
    my ($self, %how) = @_;
    my $wait = $how{timeout} ? Polyverso::Table::milliseconds($how{timeout}) : 0;
    return Polyverso::CAPI::mv_poll($self->{handle}, $how{capacity} // 64, $wait);
}

sub barrier {
    my ($self, %how) = @_;
    my $flags  = $how{async} ? $Polyverso::CAPI::MV_ASYNC : 0;
    my $handle = Polyverso::CAPI::mv_barrier($self->{handle}, Polyverso::Table::_options($flags, \%how));
    return $how{async} ? Polyverso::Request->_new($handle) : ();
}

sub _create {
    my ($self, $kind, %spec) = @_;
    my $init   = delete $spec{init};
    my $dtype  = Polyverso::Values::dtype($spec{dtype});
    my $values = defined $init ? Polyverso::Values::data($init, $dtype) : undef;
    my $handle = Polyverso::CAPI::mv_table_create($self->{handle}, { %spec, kind => $kind, dtype => $dtype }, $values);
    return Polyverso::Table->_new($handle);
}

sub array    { my $self = shift; return $self->_create($Polyverso::CAPI::MV_ARRAY,    @_) }
sub matrix   { my $self = shift; return $self->_create($Polyverso::CAPI::MV_MATRIX,   @_) }
sub sparse   { my $self = shift; return $self->_create($Polyverso::CAPI::MV_SPARSE,   @_) }
sub keyvalue { my $self = shift; return $self->_create($Polyverso::CAPI::MV_KEYVALUE, @_) }

sub open {
    my ($self, $name) = @_;
    return Polyverso::Table->_new(Polyverso::CAPI::mv_table_open($self->{handle}, $name));
}

sub doctor {
    my ($self) = @_;
    return JSON::PP->new->decode(Polyverso::CAPI::mv_doctor_text($self->{handle}, Polyverso::CAPI::MV_JSON()));
}

sub tables {
    my ($self) = @_;
    # JSON::PP's decode() wants characters, which is what the binding returns.
    return JSON::PP->new->decode(Polyverso::CAPI::mv_table_list($self->{handle}));
}

sub status {
    my ($self) = @_;
    return JSON::PP->new->decode(Polyverso::CAPI::mv_status_text($self->{handle}, $Polyverso::CAPI::MV_JSON));
}

sub status_text { my ($self) = @_; return Polyverso::CAPI::mv_status_text($self->{handle}, 0) }

sub metrics { return Polyverso::CAPI::mv_metrics_text($_[0]->{handle}) }
sub trace   { return Polyverso::CAPI::mv_trace_text($_[0]->{handle}) }

sub save {
    my ($self, $directory, %how) = @_;
    my $options = Polyverso::Table::_options(Polyverso::Table::_flags(\%how), \%how);
    my $handle = Polyverso::CAPI::mv_checkpoint_save($self->{handle}, $directory, $how{keep} // 0, $options);
    return $how{async} ? Polyverso::Request->_new($handle) : ();
}

sub load {
    my ($self, $path, %how) = @_;
    my $options = Polyverso::Table::_options(Polyverso::Table::_flags(\%how), \%how);
    my $handle = Polyverso::CAPI::mv_checkpoint_load($self->{handle}, $path, $options);
    return $how{async} ? Polyverso::Request->_new($handle) : ();
}

1;

__END__

=encoding utf8

=head1 NAME

Polyverso::Node - one process's place in a cluster

=head1 SYNOPSIS

    use Polyverso;

    my $node = Polyverso->init(sync => 1);
    printf "worker %d of %d\n", $node->worker_id, $node->num_workers;
    my $table = $node->matrix(rows => 10, cols => 64, name => 'weights', updater => 'sgd rate=0.1');
    my $words = $node->sparse(rows => 1e6, cols => 50, initial_range => 0.01, staleness => 2);
    my $seen  = $node->keyvalue(dtype => 'i64');
    $node->barrier;
    $node->shutdown;

=head1 METHODS

=head2 rank, size, worker_id, num_workers, server_id, num_servers, is_master, is_sync

Numbers. C<worker_id> is -1 in a process that is only a server, C<server_id> in one that is only a worker.

=head2 array(size => $n, ...), matrix(rows => $r, cols => $c, ...)

Create a L<Polyverso::Table>. Collective: every worker makes the same call. Further options:

=over

=item dtype

C<f32>, the default, C<f64>, C<i64>, C<i32>, C<u8>, C<i8>, C<f16> or C<bf16>; PDL's names (C<double>, C<longlong>) do as well.

=item name

The table's identity, for C<open>.

=item init

Initial values, a PDL or array reference, of which worker 0's count.

=item reject_nonfinite

Refuse NaN and infinity.

=item updater

What an add does on the servers: C<'adagrad rate=0.1'>; C<mv_table_set_updater> in F<polyverso.h> has the list.

=item staleness

How many clocks (C<< $table->clock >>) a worker may be ahead of another in its gets; 0 is sync mode for this table.
Default: as the node.

=back

=head2 sparse(rows => $r, cols => $c, ...), keyvalue(cols => $c, ...)

A matrix of which only the rows ever changed are stored and sent; and C<cols> numbers (default 1) under each of any
64-bit integers. Options as above but C<init>, and besides:

=over

=item initial

The value of what was never changed; default 0.

=item initial_range, seed

That value is random in C<initial> +- C<initial_range> instead, always the same one for the same seed, row and column.

=item capacity

C<keyvalue> only: the keys kept on all servers together; beyond, each server drops those that were least recently used.

=back

=head2 open($name)

A table that exists already.

=head2 doctor

As C<< Polyverso->doctor >>, of this node: the transport to each peer, why it is not a better one, how fast it answers.

=head2 tables

The cluster's tables, a reference to an array of hashes: name, kind, dtype, rows, cols, updater, staleness.

=head2 status

How the cluster stands, as nested hashes and arrays: its members, tables, and who waits for whom; F<docs/operations.md> has
the fields. Takes no longer than four seconds, whatever has become of the others.

=head2 status_text

The same as lines for people.

=head2 metrics

What this process has counted, as text in Prometheus's format.

=head2 trace

Its last messages, calls and waits, as JSON text in Chrome's trace event format, for L<https://ui.perfetto.dev>.

=head2 barrier(timeout => $seconds, async => 1)

Waits until this worker's adds are applied and every worker is here.

=head2 save($directory, keep => 3, timeout => $seconds, async => 1)

Saves all tables, with their updaters' states and clocks, as F<checkpoint-N> in a directory that all servers see under
this path. Collective: every worker calls it, and the checkpoint holds what each did before its call, nothing from after
it. C<keep> is how many stay, the newest ones; default: all. Returns when it is on the disk; with C<async> when training
may go on, the L<Polyverso::Request> finishes with the checkpoint. C<< Polyverso->inspect_checkpoint >> tells what is in
one.

=head2 load($path, timeout => $seconds, async => 1)

Loads all tables of a checkpoint, or of the newest whole one in a directory, on any number of servers. Collective,
between two barriers. Tables that are not there yet come to be; C<matrix> and its siblings, or C<open>, then find them
with their values. A missing or damaged one is an error of the family C<argument>, with the reason, and nothing was
changed.

=head2 event_fd, poll(capacity => 64, timeout => $seconds)

A descriptor that is readable while finished requests wait for C<poll>, and C<poll>, which returns a reference to an
array of their handles. For AnyEvent and other event loops.

=head2 shutdown

Leaves the cluster. A process that is also a server goes on serving until every worker has finished.

=cut
