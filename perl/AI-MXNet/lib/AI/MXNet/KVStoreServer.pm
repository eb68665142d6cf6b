package AI::MXNet::KVStoreServer;

# A server in Perl. The library runs its tables and optimizers; this program executes the commands.

use Mouse;

use AI::MXNet::Base ();
use AI::MXNet::KVStore;
use Polyverso::Callback;
use Polyverso::KVStore;

has kvstore    => (is => 'ro', isa => 'AI::MXNet::KVStore', required => 1);
has controller => (is => 'rw', isa => 'CodeRef', lazy => 1, default => sub { $_[0]->_controller });

# The controller of programs that become servers by `use AI::MXNet`: they set it in a BEGIN block before that.
our $controller;

# The default controller: prints the command, as AI::MXNet does.
sub _controller {
    my ($self) = @_;
    return $controller // sub {
        my ($head, $body) = @_;
        utf8::encode($body) if utf8::is_utf8($body);
        printf "server %d, unknown command (%d, %s)\n", $self->kvstore->rank, $head, $body;
    };
}

# Executes commands one by one until all workers have finished. If a command dies, the sender gets the error, and this
# process warns.
sub run {
    my ($self) = @_;
    my $execute = sub {
        my ($head, $body) = @_;
        return if Polyverso::Callback::run('the controller', sub { $self->controller->($head, $body) });
        warn "command $head: $@";
        die $@;
    };
    Polyverso::KVStore->run_server($execute, AI::MXNet::KVStore::node());
    return;
}

# The whole work of a process that a DMLC tracker has started as a server or scheduler.
sub _serve_and_exit {
    my $node = AI::MXNet::KVStore::node();
    __PACKAGE__->new(kvstore => AI::MXNet::KVStore->create('dist'))->run if $node->server_id >= 0;
    exit 0;    # the END block of KVStore.pm leaves the cluster, together with the other members
}

__PACKAGE__->meta->make_immutable;

_serve_and_exit() if ($ENV{DMLC_ROLE} // '') =~ /\A(?:server|scheduler)\z/;

1;

__END__

=encoding utf8

=head1 NAME

AI::MXNet::KVStoreServer - a server in Perl

=head1 SYNOPSIS

    use AI::MXNet qw(mx);
    use AI::MXNet::KVStoreServer;

    my $kv = mx->kv->create('dist');       # in a process with POLYVERSO_ROLE=server
    if (!$kv->store) {
        my $server = AI::MXNet::KVStoreServer->new(
            kvstore    => $kv,
            controller => sub { my ($head, $body) = @_; print "command $head: $body\n" },
        );
        $server->run;                      # until all workers have finished
    }

=head1 DESCRIPTION

The library runs the server's tables and optimizers. The controller is called, on this thread, for every command that
workers send by C<_send_command_to_servers($head, $body)>, which returns when all servers have executed it. If the
controller dies, the worker's call dies.

Under a DMLC tracker, in a process with C<DMLC_ROLE> C<server> or C<scheduler>, C<use AI::MXNet> serves until all
workers have finished, and exits. The controller is C<$AI::MXNet::KVStoreServer::controller>, set in a C<BEGIN> block
before C<use AI::MXNet>.

=head1 METHODS

=head2 new(kvstore => $kv, controller => $code), run, _controller

C<run> executes C<< $code->($head, $body) >> for each command of the workers, and returns when all workers have finished. An error in it
becomes the sender's error.

=cut
