package Polyverso::KVStore;

# A key-value store. Thin methods over kv_*, which do the work.

use strict;
use warnings;

use parent 'Polyverso::Handle';

use Polyverso::CAPI ();
use Polyverso::Callback ();
use Polyverso::Error;
use Polyverso::KVStore::Stored ();
use Polyverso::KVStore::Values ();
use Polyverso::Node ();
use Polyverso::Request;
use Polyverso::Table;
use Polyverso::Tensor;
use Polyverso::Values;
use Scalar::Util ();

sub create {
    my ($class, $type, $node) = @_;
    my $number = Polyverso::Node::_number($node);
    my $handle = Polyverso::CAPI::kv_create($number, $type // 'local');
    my $self = (bless { handle => $handle, node => $number, type => Polyverso::CAPI::kv_type($handle), keys => {} }, $class)->_adopt;
    $self->{record}{node} = -1 unless $self->_is_dist;    # it works without a node, and so after a shutdown
    return $self;
}

sub _is_dist { my ($self) = @_; return $self->{type} =~ /\A(?:dist|p3)/ }

sub _label   { my ($self) = @_; return "the $self->{type} store" }
sub _instead { return 'the other process creates its own' }

sub _details {
    my ($self) = @_;
    my $text = qq{"$self->{type}"};
    return $self->_state || !$self->_is_dist ? $text : "$text, worker " . $self->rank . ' of ' . $self->num_workers;
}

sub type        { Polyverso::CAPI::kv_type($_[0]{handle}) }
sub rank        { Polyverso::CAPI::kv_rank($_[0]{handle}) }
sub num_workers { Polyverso::CAPI::kv_num_workers($_[0]{handle}) }

my %KNOWN = map { $_ => 1 } qw(async priority sparse_too timeout);

sub _how {
    my (%how) = @_;
    Polyverso::Values::check_options(\%how, \%KNOWN);
    my $flags = $how{async} ? $Polyverso::CAPI::MV_ASYNC : 0;
    $flags |= $Polyverso::CAPI::KV_SPARSE_TOO if $how{sparse_too};
    return Polyverso::Table::_options($flags, \%how);
}

# The tensors, with the priority from %how.
sub _values { my ($values, $how) = @_; return $how->{priority} ? { tensors => $values, priority => $how->{priority} } : $values }

sub init {
    my ($self, $keys, $values) = @_;
    my $tensors = Polyverso::KVStore::Values::to_send('$kv->init', $keys, $values, {});
    Polyverso::CAPI::kv_init($self->{handle}, $keys, $tensors);
    Polyverso::KVStore::Values::remember($keys, $tensors, $self->{keys});
    return;
}

sub push {
    my ($self, $keys, $values, @how) = @_;
    my %how = Polyverso::Values::pairs(@how);
    my $tensors = Polyverso::KVStore::Values::to_send('$kv->push', $keys, $values, $self->{keys});
    Polyverso::CAPI::kv_push($self->{handle}, $keys, _values($tensors, \%how), _how(%how));
    return $self->update;
}

# Makes the call. While it returns MV_EPENDING, because pushes wait for this store's updater, runs the updater and makes
# the call again.
sub _updated {
    my ($self, $call, $fill, @arguments) = @_;
    while (1) {
        my $handle;
        return $handle ? Polyverso::Request->_new($handle, $fill) : $fill ? $fill->() : $handle
            if eval { $handle = $call->($self->{handle}, @arguments); 1 };
        my $error = $@;
        die $error
            unless $self->{updater} && Scalar::Util::blessed($error) && $error->status == $Polyverso::CAPI::MV_EPENDING;
        $self->update;
    }
}

sub pull {
    my ($self, $keys, $out, @how) = @_;
    my %how = Polyverso::Values::pairs(@how);
    my ($tensors, $fill) = Polyverso::KVStore::Values::to_fill('$kv->pull', $keys, $out, $self->{keys});
    return $self->_updated(\&Polyverso::CAPI::kv_pull, $fill, $keys, _values($tensors, \%how), _how(%how));
}

# Row ids as tensors: converts PDLs, numbers and arrays of integers, also inside nested arrays.
sub _ids {
    my ($ids) = @_;
    return $ids if UNIVERSAL::isa($ids, 'Polyverso::Tensor');
    return Polyverso::Values::is_pdl($ids) || !ref $ids || !grep({ ref } @$ids)
        ? Polyverso::Tensor->copy_of($ids, 'i64')
        : [map { _ids($_) } @$ids];
}

sub row_sparse_pull {
    my ($self, $keys, $out, $row_ids, @how) = @_;
    my %how = Polyverso::Values::pairs(@how);
    my $ids = _ids($row_ids);
    # One list of ids is used for all keys.
    $ids = [map { [$ids] } @$keys] if ref $keys && ref $ids ne 'ARRAY';
    return $self->_updated(\&Polyverso::CAPI::kv_row_sparse_pull, undef, $keys, _values($out, \%how), $ids, _how(%how));
}

# pushpull and broadcast make two calls each, which continue after a signal; kv_pushpull() and kv_broadcast() do not.
sub pushpull {
    my ($self, $keys, $values, $out, @how) = @_;
    my %how = Polyverso::Values::pairs(@how);
    $self->push($keys, $values, %how);
    return $self->pull($keys, $out // $values, %how);
}

sub broadcast {
    my ($self, $keys, $values, $out) = @_;
    $self->init($keys, $values);
    return $self->pull($keys, $out // $values);
}

sub set_optimizer {
    my ($self, $optimizer, @parameters) = @_;
    Polyverso::Error->throw($Polyverso::CAPI::MV_EINVAL, q{$kv->set_optimizer: an optimizer's name is needed, such as 'mx.sgd', not }
            . Polyverso::Lists::shown($optimizer)) if !defined $optimizer || ref $optimizer;
    Polyverso::CAPI::kv_set_optimizer($self->{handle}, Polyverso::Values::with_parameters('$kv->set_optimizer', $optimizer, @parameters));
    delete $self->{updater};
    return;
}

# Refuses what can't be called, at once: a push would fail later.
sub _check_code {
    my ($what, $code) = @_;
    return if !defined $code || Polyverso::Values::is_code($code);
    Polyverso::Error->throw($Polyverso::CAPI::MV_EINVAL,
        "$what: a code reference is needed, or undef for none, not " . Polyverso::Lists::shown($code));
}

sub set_updater {
    my ($self, $updater) = @_;
    _check_code('$kv->set_updater', $updater);
    Polyverso::CAPI::kv_set_updater($self->{handle}, $updater ? 1 : 0);
    $self->{updater} = $updater;
    return;
}

# The store is about to take this tensor back. If the updater has kept a reference, puts a copy into the kept object,
# and returns a new object that holds the original.
sub _leave_copy {
    my ($tensor) = @_;
    return if Internals::SvREFCNT($$tensor) <= 1;
    my $original = $tensor->copy;
    ($$tensor, $$original) = ($$original, $$tensor);
    return $original;
}

sub update {
    my ($self) = @_;
    return if !$self->{updater} || $self->{is_updating};
    local $self->{is_updating} = 1;
    my ($failed, $error);
    while (1) {
        my ($merged, $stored, $key) = Polyverso::CAPI::kv_next_update($self->{handle});
        last unless $merged;
        my @tensors = (Polyverso::Tensor->_new($merged), Polyverso::KVStore::Stored->_new($stored));
        my $outcome = $Polyverso::CAPI::MV_ECANCELED;
        my $done    = Polyverso::Callback->at_end(sub {
            my @gone = map { _leave_copy($_) } @tensors;
            Polyverso::CAPI::kv_update_done($self->{handle}, $outcome);
        });
        if (Polyverso::Callback::run(qq{key "$key": the updater}, sub { Polyverso::KVStore::Stored::update($self->{updater}, $key, @tensors) })) {
            $outcome = $Polyverso::CAPI::MV_OK;
        }
        else {
            $error   = $@ unless $failed++;
            $outcome = Polyverso::Error::_report($@);
        }
        $done->now;
    }
    die $error if $failed;
    return;
}

sub set_reject_nonfinite {
    my ($self, $on) = @_;
    Polyverso::CAPI::kv_set_reject_nonfinite($self->{handle}, $on // 1);
    return;
}

sub set_key_parameters {
    my ($self, $keys, @parameters) = @_;
    @parameters = %{ $parameters[0] } if ref $parameters[0] eq 'HASH';
    my $text = @parameters == 1 ? $parameters[0] : Polyverso::Values::with_parameters('$kv->set_key_parameters', '', @parameters);
    Polyverso::CAPI::kv_set_key_parameters($self->{handle}, $keys, $text =~ s/\A //r);
    return;
}

sub set_gradient_compression {
    my ($self, $codec, @parameters) = @_;
    my $what = '$kv->set_gradient_compression';
    if (ref $codec eq 'HASH') {
        my %words = %$codec;
        $codec = delete $words{type} // Polyverso::Error->throw($Polyverso::CAPI::MV_EINVAL,
            "$what: the type is missing: {type => '2bit', @{[join ', ', map { qq{$_ => $words{$_}} } sort keys %words]}}");
        @parameters = %words;
    }
    Polyverso::CAPI::kv_set_gradient_compression($self->{handle}, Polyverso::Values::with_parameters($what, $codec, @parameters));
    return;
}

sub save_optimizer_states {
    my ($self, $path, @how) = @_;
    my $how = Polyverso::Values::options(['dump_optimizer'], @how);
    Polyverso::CAPI::kv_save_optimizer_states($self->{handle}, $path, $how->{dump_optimizer} ? $Polyverso::CAPI::KV_DUMP_OPTIMIZER : 0);
    return;
}

sub load_optimizer_states {
    my ($self, $path) = @_;
    Polyverso::CAPI::kv_load_optimizer_states($self->{handle}, $path);
    return;
}

# For each node, the function that executes the commands sent to its server.
my %controllers;
my $MEANWHILE = 5;    # milliseconds between two polls of a request

sub send_command {
    my ($self, $head, $body, @how) = @_;
    my %how = Polyverso::Values::pairs(@how);
    my $node = $self->{node};
    if (!$controllers{$node}) {
        my $request = Polyverso::CAPI::kv_send_command($self->{handle}, $head, $body, _how(%how));
        return $request && Polyverso::Request->_new($request);
    }
    my $request = Polyverso::CAPI::kv_send_command($self->{handle}, $head, $body, _how(%how, async => 1));
    _run_commands($node, $MEANWHILE) until Polyverso::CAPI::mv_request_test($request);
    return;
}

sub set_controller {
    my ($class, $controller, $node) = @_;
    my $number = Polyverso::Node::_number($node);
    _check_code('Polyverso::KVStore->set_controller', $controller);
    Polyverso::CAPI::kv_set_controller($number, $controller ? 1 : 0);
    $controllers{$number} = $controller;
    return;
}

# Executes the queued commands, and waits up to `milliseconds` for the first; false once all workers have finished.
sub _run_commands {
    my ($node, $milliseconds) = @_;
    my ($found, $head, $body) = Polyverso::CAPI::kv_next_command($node, $milliseconds);
    while ($found == $Polyverso::CAPI::KV_COMMAND_HERE) {
        my $outcome = $Polyverso::CAPI::MV_ECANCELED;
        my $done    = Polyverso::Callback->at_end(sub { Polyverso::CAPI::kv_command_done($node, $outcome) });
        my $fine    = Polyverso::Callback::run("command $head: the controller", sub { $controllers{$node}->($head, $body) });
        $outcome = $fine ? $Polyverso::CAPI::MV_OK : Polyverso::Error::_report($@);
        $done->now;
        ($found, $head, $body) = Polyverso::CAPI::kv_next_command($node, 0);
    }
    return $found != $Polyverso::CAPI::KV_COMMAND_NEVER;
}

sub run_commands {
    my ($class, @how) = @_;
    my $how = Polyverso::Values::options([qw(timeout node)], @how);
    return _run_commands(Polyverso::Node::_number($how->{node}), $how->{timeout} ? Polyverso::Table::milliseconds($how->{timeout}) : 0);
}

sub run_server {
    my ($class, $controller, $node) = @_;
    $class->set_controller($controller, $node);
    1 while $class->run_commands(timeout => -1, node => $node);
    return;
}

sub barrier {
    my ($self, @how) = @_;
    my %how = Polyverso::Values::pairs(@how);
    Polyverso::CAPI::kv_barrier($self->{handle}, _how(%how));
    return;
}

sub leave {
    my ($self) = @_;
    Polyverso::CAPI::kv_leave($self->{handle});
    return;
}

sub closes_with { return 'kv_free' }
sub free { my ($self) = @_; return $self->close }

1;

__END__

=encoding utf8

=head1 NAME

Polyverso::KVStore - a key-value store of tensors, which workers push, merge, update and pull

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

A key-value store in the style of MXNet's. F<docs/kvstore.md> describes its guarantees, and F<polyverso/kvstore.h> each
function. L<AI::MXNet::KVStore> has MXNet's own interface to it.

Keys are names: one, or a reference to an array of names. Perl does not distinguish 3 from C<'3'>, and neither does the
store. Values are L<Polyverso::Tensor> objects, PDLs, references to (nested) arrays of numbers, or packed strings of a
known key's dtype and size: one for each key, or an array with one for each device. A push sums the devices' values, and
a pull fills all of them; it can fill tensors and PDLs. A PDL of dims (3, 2) is a tensor of shape (2, 3). PDLs and
arrays are converted to the key's dtype, which C<init> sets: that of a PDL, or C<f32> for an array. C<<
Polyverso::Tensor->view($pdl) >> makes a tensor on a PDL's memory, so that nothing is copied.

A failed call throws a L<Polyverso::Error>, and the store remains usable. Calls that may wait take
C<< timeout => $seconds >>. Pushes and pulls take C<< priority => $number >>. Pulls take C<< async => 1 >> and then
return a L<Polyverso::Request> at once; the tensors must not be used before it has finished.

=head1 METHODS

=head2 Polyverso::KVStore->create($type, $node)

C<local>, the default, needs no node, and works after C<< $node->shutdown >>, too. C<dist_sync>, C<dist_async> and MXNet's other dist types need a
C<< Polyverso->init >> first, or a C<$node>. Workers create their stores in the same order.

=head2 type, rank, num_workers, handle

The store's type, this worker's number from 0, the number of workers, and the C<kv_store> for the C functions.

=head2 init($keys, $values)

Creates keys. In stores of dist types all workers call it, and the values of worker 0 are used.

=head2 push($keys, $values, %how)

Pushes a snapshot of the values. Without an optimizer it replaces the stored value; a C<dist_sync> store does
so when all workers have pushed.

=head2 pull($keys, $out, %how)

Copies the values into C<$out>. They include this worker's earlier pushes. Row-sparse tensors are skipped, except with
C<< sparse_too => 1 >>.

=head2 row_sparse_pull($keys, $out, $row_ids, %how)

Pulls some rows of row-sparse keys into row-sparse tensors, which then hold exactly these rows. C<$row_ids> are tensors,
PDLs or references to arrays of integers, in any order, repeats allowed. For one key, they are one list for all outputs,
or an array of one list for each output; for several keys, an array of these, or one list for all keys.

=head2 pushpull($keys, $values, $out, %how), broadcast($keys, $values, $out)

C<push> or C<init>, then C<pull> into C<$out>, or into C<$values> without C<$out>.

=head2 set_optimizer($name, %parameters)

Sets the optimizer of all keys, such as C<< 'mx.adam', learning_rate => 0.001 >> or the same as one text,
C<'mx.adam learning_rate=0.001'>; F<docs/optimizers.md> has the list. One worker calls it, before the pushes to which it
should apply.

=head2 set_updater($code), update

Sets the function that handles a push in a store of this process, instead of replacing the value: C<< $code->($key,
$merged, $stored) >> changes C<$stored> in place, or returns what replaces it: a tensor, a PDL or a list of numbers, of
the same shape. If it has changed C<$stored>, its return value is ignored. If it has not used C<$stored>, any other
return value is an error; C<return;> keeps the value. The updater has handled a push when C<push> returns. If it dies,
or is left by C<next> or C<last>, C<push> throws an error, and the value stays as it was. A tensor that the updater
keeps becomes a copy when the updater returns. C<update> processes the queued updates of other threads' pushes. C<undef>
removes the updater.

=head2 set_reject_nonfinite($on)

Keys that are initialised from now on refuse NaN and infinity, unless C<$on> is 0. In stores of dist types all workers
make the same call.

=head2 set_gradient_compression($codec)

Sets the codec that compresses pushes from now on: C<'2bit threshold=0.5'>, C<< '2bit', threshold => 0.5 >> or
C<< {type => '2bit', threshold => 0.5} >>. This worker keeps the residual of a push, and adds it to the next one.
F<docs/kvstore.md> lists the codecs.

=head2 save_optimizer_states($path, dump_optimizer => 1), load_optimizer_states($path)

Save the optimizer's states of all keys from all servers into one file of this process, and load them. With
C<dump_optimizer> the file also contains the optimizer and its counts. One worker calls them, between two barriers.

=head2 set_key_parameters($keys, %parameters)

Sets multipliers of single keys for MXNet's optimizers: C<< lr_mult => 0.1, wd_mult => 0 >>, or one text
C<'lr_mult=0.1 wd_mult=0'>; C<''> removes them.

=head2 send_command($head, $body, %how)

Sends a command, whose meaning is the program's own, to all servers, and returns when the controller of each has
executed it. If this process has a controller too, it executes commands meanwhile.

=head2 Polyverso::KVStore->set_controller($code, $node), run_commands(timeout => $seconds, node => $node), run_server($code, $node)

C<set_controller> sets the function that executes commands on this server: C<< $code->($head, $body) >>. If it dies, the
sender gets the error. C<run_commands> executes the queued commands, and returns false once all workers have finished.
C<run_server> is for a process that is only a server: it sets the controller, and executes commands until then.

=head2 barrier(%how)

Returns when all workers have called it.

=head2 leave

This worker stops pushing: rounds continue without it.

=head2 free

Frees the store now, rather than with its last reference.

=cut
