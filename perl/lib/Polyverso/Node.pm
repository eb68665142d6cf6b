package Polyverso::Node;

use strict;
use warnings;

use parent 'Polyverso::Handle';

use JSON::PP ();
use Polyverso::CAPI ();
use Polyverso::Exit ();
use Polyverso::Names ();
use Polyverso::Request;
use Polyverso::Table;
use Polyverso::Values;

sub _new {
    my ($class, $handle) = @_;
    Polyverso::Exit::opened($handle);
    return (bless { handle => $handle, node => $handle }, $class)->_adopt;
}

# By node: see on_membership().
my %CALLBACKS;

sub _instead { return 'the other process calls Polyverso->init' }

sub _details {
    my ($self) = @_;
    return '' if $self->_state;
    my $worker = $self->worker_id;
    my $place  = $worker < 0 ? 'server ' . $self->server_id . ' of ' . $self->num_servers : "worker $worker of " . $self->num_workers;
    my $tables = Polyverso::Table::_count($self->{handle});
    return join ', ', $place, $self->is_sync ? 'sync' : 'async', "$tables table" . ($tables == 1 ? '' : 's');
}

# A node's handle; without a node 0, the default node. A handle is accepted as it is.
sub _number {
    my ($node) = @_;
    return 0 unless defined $node;
    return $node->handle if UNIVERSAL::isa($node, __PACKAGE__);
    return $node if Polyverso::Values::is_integer($node);
    Polyverso::Error->_refuse($Polyverso::CAPI::MV_EINVAL, 'a Polyverso::Node is needed, not ' . Polyverso::Lists::shown($node));
}

sub handle      { $_[0]{handle} }
sub rank        { Polyverso::CAPI::mv_rank($_[0]{handle}) }
sub size        { Polyverso::CAPI::mv_size($_[0]{handle}) }
sub worker_id   { Polyverso::CAPI::mv_worker_id($_[0]{handle}) }
sub num_workers { Polyverso::CAPI::mv_num_workers($_[0]{handle}) }
sub active_workers { Polyverso::CAPI::mv_active_workers($_[0]{handle}) }
sub server_id   { Polyverso::CAPI::mv_server_id($_[0]{handle}) }
sub num_servers { Polyverso::CAPI::mv_num_servers($_[0]{handle}) }
sub is_master   { Polyverso::CAPI::mv_is_master($_[0]{handle}) }
sub is_sync     { Polyverso::CAPI::mv_is_sync($_[0]{handle}) }
sub event_fd    { Polyverso::CAPI::mv_event_fd($_[0]{handle}) }

sub _is_open {
    my ($self) = @_;
    local ($@, $SIG{__DIE__});
    return eval { Polyverso::CAPI::mv_rank($self->{handle}); 1 };
}

sub shutdown {
    my ($self) = @_;
    my $went_well = eval { Polyverso::CAPI::mv_shutdown($self->{handle}); 1 };
    my $error = $@;
    $self->_ended unless $self->_is_open;
    die $error unless $went_well;
    return;
}

sub drain {
    my ($self, @how) = @_;
    my $how     = Polyverso::Values::options([qw(timeout)], @how);
    my $timeout = defined $how->{timeout} ? $how->{timeout} : 30;
    Polyverso::CAPI::mv_cluster_drain($self->{handle}, $timeout ? Polyverso::Table::milliseconds($timeout) : 0);
    return;
}

sub resize {
    my ($self, $servers, @how) = @_;
    my $how     = Polyverso::Values::options([qw(timeout)], @how);
    my $timeout = defined $how->{timeout} ? $how->{timeout} : 60;
    Polyverso::CAPI::mv_cluster_resize($self->{handle}, $servers, $timeout ? Polyverso::Table::milliseconds($timeout) : 0);
    return;
}

sub _ended {
    my ($self) = @_;
    delete $CALLBACKS{ $self->{handle} };
    Polyverso::Exit::closed($self->{handle});
    Polyverso::Handle::ended($self->{handle});
    Polyverso::Table::_forget_all($self->{handle});
    return;
}

sub abort {
    my ($self, $reason) = @_;
    Polyverso::CAPI::mv_abort($self->{handle}, defined $reason ? "$reason" =~ s/\s+\z//r : undef);
    $self->_ended;
    return;
}

# A dropped node stays open: the default node has no owner.
sub DESTROY { $_[0]->_forget; return }

sub poll {
    my ($self, @how) = @_;
    my $how  = Polyverso::Values::options([qw(capacity timeout)], @how);
    my $wait = $how->{timeout} ? Polyverso::Table::milliseconds($how->{timeout}) : 0;
    my $finished = Polyverso::CAPI::mv_poll($self->{handle}, $how->{capacity} // 64, $wait);
    $self->_hand_out if $CALLBACKS{ $self->{handle} };
    return $finished;
}

my @KINDS = qw(joined left lost draining drained took_over);

sub next_event {
    my ($self, @how) = @_;
    my $how   = Polyverso::Values::options([qw(timeout)], @how);
    my $wait  = $how->{timeout} ? Polyverso::Table::milliseconds($how->{timeout}) : 0;
    local ($@, $SIG{__DIE__});
    my $event = eval { Polyverso::CAPI::mv_membership_next($self->{handle}, $wait) };
    if (!$event) {
        die $@ unless ref $@ && $@->name eq 'MV_ETIMEOUT';
        return;
    }
    $event->{kind} = $KINDS[$event->{kind}];
    $event->{role} = (qw(scheduler worker server all))[$event->{role} & 3];
    delete $event->{part} if $event->{part} < 0;
    return $event;
}

sub on_membership {
    my ($self, $callback) = @_;
    Polyverso::Error->throw($Polyverso::CAPI::MV_EINVAL,
        '$node->on_membership: a code reference is needed, or undef for none, not ' . Polyverso::Lists::shown($callback))
        if defined $callback && !Polyverso::Values::is_code($callback);
    delete $CALLBACKS{ $self->{handle} };
    $CALLBACKS{ $self->{handle} } = $callback if $callback;
    $self->_hand_out if $callback;
    return;
}

sub _hand_out {
    my ($self) = @_;
    while (my $event = $self->next_event) { $CALLBACKS{ $self->{handle} }->($event) }
    return;
}

sub barrier {
    my ($self, @how) = @_;
    my $how    = Polyverso::Values::options([qw(timeout async)], @how);
    my $flags  = $how->{async} ? $Polyverso::CAPI::MV_ASYNC : 0;
    my $handle = Polyverso::CAPI::mv_barrier($self->{handle}, Polyverso::Table::_options($flags, $how));
    return $how->{async} ? Polyverso::Request->_new($handle) : ();
}

my %KIND = map { $_ => ${ $Polyverso::CAPI::{"MV_\U$_"} } } qw(array matrix sparse keyvalue);

# The options of each kind of table, the required one first.
my @SPEC = qw(name dtype updater staleness reject_nonfinite merge no_backups);
my @INITIAL = qw(initial initial_range seed device);
my %SPEC = (
    array    => [qw(size init device),      @SPEC],
    matrix   => [qw(rows cols init device), @SPEC],
    sparse   => [qw(rows cols),      @INITIAL, @SPEC],
    keyvalue => [qw(cols capacity),  @INITIAL, @SPEC],
);

sub _create {
    my ($kind, $self, @spec) = @_;
    local $Polyverso::Names::FUNCTION{mv_table_create} = "\$node->$kind";
    my %spec = %{ Polyverso::Values::options($SPEC{$kind}, @spec) };
    my ($required) = @{ $SPEC{$kind} };
    Polyverso::Error->_refuse($Polyverso::CAPI::MV_EINVAL, "$required is missing: pass $required => \$number")
        unless defined $spec{$required} || $kind eq 'keyvalue';
    $spec{device} = Polyverso::Values::place($spec{device}) if defined $spec{device};
    my $init   = delete $spec{init};
    my $dtype  = Polyverso::Values::dtype($spec{dtype});
    my $rows   = $spec{ $kind eq 'array' ? 'size' : 'rows' };
    my $cols   = $kind eq 'array' ? undef : $spec{cols} // 1;
    $rows = undef unless Polyverso::Values::is_integer($rows);
    my $values = defined $init ? Polyverso::Values::data($init, $dtype, "\$node->$kind: init", $rows, defined $rows ? $cols : undef) : undef;
    my $handle = Polyverso::CAPI::mv_table_create($self->{handle}, { %spec, kind => $KIND{$kind}, dtype => $dtype }, $values);
    return Polyverso::Table->_new($handle, $self->{handle});
}

sub array    { return _create(array    => @_) }
sub matrix   { return _create(matrix   => @_) }
sub sparse   { return _create(sparse   => @_) }
sub keyvalue { return _create(keyvalue => @_) }

sub open {
    my ($self, $name) = @_;
    return Polyverso::Table->_new(Polyverso::CAPI::mv_table_open($self->{handle}, $name), $self->{handle});
}

sub doctor {
    my ($self) = @_;
    return JSON::PP->new->decode(Polyverso::CAPI::mv_doctor_text($self->{handle}, $Polyverso::CAPI::MV_JSON));
}

sub tables {
    my ($self) = @_;
    # The binding returns characters, as JSON::PP's decode() expects.
    return JSON::PP->new->decode(Polyverso::CAPI::mv_table_list($self->{handle}));
}

sub status {
    my ($self) = @_;
    return JSON::PP->new->decode(Polyverso::CAPI::mv_status_text($self->{handle}, $Polyverso::CAPI::MV_JSON));
}

sub status_text { my ($self) = @_; return Polyverso::CAPI::mv_status_text($self->{handle}, 0) }

sub report { my ($self, $name, $value) = @_; return Polyverso::CAPI::mv_report($self->{handle}, $name, $value) }

sub metrics { return Polyverso::CAPI::mv_metrics_text($_[0]->{handle}) }
sub trace   { return Polyverso::CAPI::mv_trace_text($_[0]->{handle}) }

sub save {
    my ($self, $directory, @how) = @_;
    my $how     = Polyverso::Values::options([qw(keep timeout async)], @how);
    my $options = Polyverso::Table::_options(Polyverso::Table::_flags($how), $how);
    my $handle = Polyverso::CAPI::mv_checkpoint_save($self->{handle}, $directory, $how->{keep} // 0, $options);
    return $how->{async} ? Polyverso::Request->_new($handle) : ();
}

sub load {
    my ($self, $path, @how) = @_;
    my $how     = Polyverso::Values::options([qw(timeout async)], @how);
    my $options = Polyverso::Table::_options(Polyverso::Table::_flags($how), $how);
    my $handle = Polyverso::CAPI::mv_checkpoint_load($self->{handle}, $path, $options);
    return $how->{async} ? Polyverso::Request->_new($handle) : ();
}

1;

__END__

=encoding utf8

=head1 NAME

Polyverso::Node - a member of a cluster

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

=head2 rank, size, worker_id, num_workers, active_workers, server_id, num_servers, is_master, is_sync, handle

Numbers; C<handle> is the C<mv_node> for the C functions. C<worker_id> is -1 in a process that is only a server,
C<server_id> is -1 in one that is only a worker. C<num_workers> is their number when this process joined,
C<active_workers> the number of those that are there now: with room for more (C<max_workers>), new ones may join at any
time.

=head2 array(size => $n, ...), matrix(rows => $r, cols => $c, ...)

Create a L<Polyverso::Table>. Collective: every worker makes the same call. Further options:

=over

=item dtype

C<f32>, the default, C<f64>, C<i64>, C<i32>, C<u8>, C<i8>, C<f16> or C<bf16>. PDL's names (C<double>, C<longlong>) are
accepted too.

=item name

The table's identity, for C<open>.

=item init

Initial values, a PDL or array reference. Those of worker 0 are used.

=item reject_nonfinite

Refuse NaN and infinity.

=item merge

Every worker's i-th add is its part of round i; the sum of a round goes through the updater once.

=item no_backups

replicas=0 for this table: in a cluster with replicas its calls cost as without them, and if one of its servers is lost,
calls on that part fail until the table is loaded, or destroyed and created again.

=item updater

How the servers apply an add: C<'adagrad rate=0.1'>; C<mv_table_set_updater> in F<polyverso.h> has the list.

=item staleness

How many clocks (C<< $table->clock >>) a worker may be ahead of the slowest one in its gets; 0 is sync mode for this
table. Default: the node's mode.

=back

=head2 sparse(rows => $r, cols => $c, ...), keyvalue(cols => $c, ...)

C<sparse> creates a matrix that stores and sends only rows that were changed. C<keyvalue> creates a table of C<cols>
numbers (default 1) for each key, which is any 64-bit integer. Options as above except C<init>, and:

=over

=item initial

The value of elements that were never changed; default 0.

=item initial_range, seed

That value is instead random in C<initial> +- C<initial_range>, and depends only on seed, row and column.

=item capacity

C<keyvalue> only: the number of keys kept on all servers together. Beyond it, each server drops its least recently used
keys.

=back

=head2 open($name)

Opens an existing table.

=head2 doctor

C<< Polyverso->doctor >> for this node: the transport to each peer, why it is not a better one, and its latency.

=head2 tables

The cluster's tables, a reference to an array of hashes: name, kind, dtype, rows, cols, updater, staleness.

=head2 status

The status of the cluster, as nested hashes and arrays: its members, its tables, and which member waits for which;
F<docs/operations.md> has the fields. Takes no longer than four seconds, even if other members are stopped or lost.

=head2 status_text

The status as text for people.

=head2 report($name, $value)

Shows a number of this program, such as C<< $node->report(loss => $loss) >>, in the cluster's status and in C<metrics>:
the latest of each name. At most 64 names. Sends nothing, and never waits.

=head2 metrics

The metrics of this process, in Prometheus's text format.

=head2 trace

The last messages, calls and waits of this process, as JSON text in Chrome's trace event format, for
L<https://ui.perfetto.dev>.

=head2 drain(timeout => $seconds)

Hands the tables of this process, which must be a server, over to other servers. Afterwards shutdown() does not wait for
the workers. Nothing is lost, and workers' calls only take longer. C<polyverso server> does it at SIGTERM. A process that
is also a worker finishes as a worker first: it can use no tables, stores or groups any more, and no other worker waits
for it. The default time-out is 30 seconds. After a time-out the drain continues, and this server still serves. With 0 it only begins.

=head2 resize($servers, timeout => $seconds)

Changes the number of the cluster's servers, if it was started with room for them (C<max_servers>,
C<polyverso run --max-servers>). With fewer than now, those with the highest ranks drain and leave; with more,
C<polyverso run> starts the missing ones. Workers continue meanwhile; their calls only take longer. Waits until the
cluster has them, by default for 60 seconds. After a time-out the change continues. With 0 it only waits for the master's
answer.

=head2 barrier(timeout => $seconds, async => 1)

Waits until this worker's adds are applied and every worker has called it.

=head2 save($directory, keep => 3, timeout => $seconds, async => 1)

Saves all tables, with their updaters' states and clocks, as F<checkpoint-N> in a directory that all servers see under
this path; it and its parents are created if they do not exist. Collective: every worker calls it. The checkpoint
includes everything that each worker did before its call and nothing after it. C<keep> is how many checkpoints are kept,
the newest ones; default: all. Returns when the checkpoint is on the disk. With C<async> it returns when training may
continue, and the L<Polyverso::Request> finishes with the checkpoint. C<< Polyverso->inspect_checkpoint >> shows the
contents of a checkpoint.

=head2 load($path, timeout => $seconds, async => 1)

Loads all tables of a checkpoint, or of the newest complete one in a directory, on any number of servers. Collective,
between two barriers. Missing tables are created; C<array>, C<matrix>, C<sparse>, C<keyvalue> or C<open> then find them
with their values. If the checkpoint is missing or damaged, nothing is changed, and the error is of the family
C<argument>, with the reason.

=head2 event_fd, poll(capacity => 64, timeout => $seconds)

C<event_fd> is a descriptor that is readable while finished requests wait for C<poll>. C<poll> returns a reference to an
array of their handles. For AnyEvent and other event loops.

=head2 next_event(timeout => $seconds)

The oldest change of the cluster's membership that was not returned yet, as a reference to a hash, or nothing. C<kind> is
C<joined>, C<left>, C<lost>, C<draining>, C<drained> or C<took_over>; C<rank> and C<role> are the member's; C<part> is the
rank whose tables a server has taken over; C<epoch> is that of the list of members; C<reason> is a sentence; C<dropped> is
the number of older events that were dropped, because more than 256 waited.

=head2 on_membership($callback)

Calls C<< $callback->($event) >> with each of these events, inside C<poll>. C<undef>: no longer.

=head2 shutdown

Leaves the cluster. A process that is also a server continues to serve until every worker has finished. A program that
ends with exit status 0 without this call is shut down automatically.

=head2 abort($reason)

Leaves the cluster as lost, because this program has failed: calls of the others that need this process fail, and their
errors have the reason. A program that dies, or ends with another exit status than 0, does this automatically: an uncaught
C<die> has its text as the reason. Errors that C<eval> catches change nothing. To know the text, the library sets
C<$SIG{__DIE__}>, and calls the program's own handler, if there is one, as before.

=cut
