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

my %DTYPE = (
    f32 => $Polyverso::CAPI::MV_F32, float  => $Polyverso::CAPI::MV_F32, float32 => $Polyverso::CAPI::MV_F32,
    f64 => $Polyverso::CAPI::MV_F64, double => $Polyverso::CAPI::MV_F64, float64 => $Polyverso::CAPI::MV_F64,
);

sub _create {
    my ($self, $kind, %spec) = @_;
    my $init  = delete $spec{init};
    my $dtype = $DTYPE{ $spec{dtype} // 'f32' }
        // Polyverso::Error->throw($Polyverso::CAPI::MV_EDTYPE, qq{dtype "$spec{dtype}": "f32" or "f64" is needed});
    my $values = defined $init ? Polyverso::Values::data($init, $dtype) : undef;
    my $handle = Polyverso::CAPI::mv_table_create($self->{handle}, { %spec, kind => $kind, dtype => $dtype }, $values);
    return Polyverso::Table->_new($handle);
}

sub array  { my $self = shift; return $self->_create($Polyverso::CAPI::MV_ARRAY,  @_) }
sub matrix { my $self = shift; return $self->_create($Polyverso::CAPI::MV_MATRIX, @_) }

sub open {
    my ($self, $name) = @_;
    return Polyverso::Table->_new(Polyverso::CAPI::mv_table_open($self->{handle}, $name));
}

sub tables {
    my ($self) = @_;
    # JSON::PP's decode() wants characters, which is what the binding returns.
    return JSON::PP->new->decode(Polyverso::CAPI::mv_table_list($self->{handle}));
}

1;

__END__

=encoding utf8

=head1 NAME

Polyverso::Node - one process's place in a cluster

=head1 SYNOPSIS

    my $node = Polyverso->init(sync => 1);
    printf "worker %d of %d\n", $node->worker_id, $node->num_workers;
    my $table = $node->matrix(rows => 10, cols => 64, name => 'weights', init => $pdl);
    $node->barrier;
    $node->shutdown;

=head1 METHODS

=head2 rank, size, worker_id, num_workers, server_id, num_servers, is_master, is_sync

Numbers. C<worker_id> is -1 in a process that is only a server, C<server_id> in one that is only a worker.

=head2 array(size => $n, ...), matrix(rows => $r, cols => $c, ...)

Create a L<Polyverso::Table>. Collective: every worker makes the same call. Further options: C<dtype> (C<f32>, the
default, or C<f64>), C<name>, C<init> (initial values, a PDL or array reference, of which worker 0's count),
C<reject_nonfinite>.

=head2 open($name)

A table that exists already.

=head2 tables

The cluster's tables, a reference to an array of hashes: name, kind, dtype, rows, cols.

=head2 barrier(timeout => $seconds, async => 1)

Waits until this worker's adds are applied and every worker is here.

=head2 event_fd, poll(capacity => 64, timeout => $seconds)

A descriptor that is readable while finished requests wait for C<poll>, and C<poll>, which returns a reference to an
array of their handles. For AnyEvent and other event loops.

=head2 shutdown

Leaves the cluster. A process that is also a server goes on serving until every worker has finished.

=cut
