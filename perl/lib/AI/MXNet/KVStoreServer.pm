package AI::MXNet::KVStoreServer;

# A server in Perl: tables and optimizers are the library's, commands come to this program.

use Mouse;

use AI::MXNet::Base ();
use AI::MXNet::KVStore;
use Polyverso::KVStore;

has kvstore    => (is => 'ro', isa => 'AI::MXNet::KVStore', required => 1);
has controller => (is => 'rw', isa => 'CodeRef', lazy => 1, default => sub { $_[0]->_controller });

# For programs that become servers by `use AI::MXNet`: set in a BEGIN block before it.
our $controller;

# What a command does unless the program says: it is named, as AI::MXNet does.
sub _controller {
    my ($self) = @_;
    return $controller // sub {
        my ($head, $body) = @_;
        printf "server %d, unknown command (%d, %s)\n", $self->kvstore->rank, $head, $body;
    };
}

# Until all workers have finished. Commands are executed one by one; one that dies is the sender's error, and told here.
sub run {
    my ($self) = @_;
    my $execute = sub {
        my ($head, $body) = @_;
        return if eval { $self->controller->($head, $body); 1 };
        warn "command $head: $@";
        die $@;
    };
    Polyverso::KVStore->run_server($execute, AI::MXNet::KVStore::node());
    return;
}

# Of a process that a DMLC tracker has started as server or scheduler, all there is to do.
sub _serve_and_exit {
    my $node = AI::MXNet::KVStore::node();
    __PACKAGE__->new(kvstore => AI::MXNet::KVStore->create('dist'))->run if $node->server_id >= 0;
    exit 0;    # which leaves the cluster when everybody does
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

The server's tables and optimizers work by themselves. The controller is called, on this thread, with every command of the
workers' C<_send_command_to_servers($head, $body)>, which returns when all servers have executed it; where it dies, the
worker's call does.

Under a DMLC tracker C<use AI::MXNet> makes of a process with C<DMLC_ROLE> C<server> or C<scheduler> just that: it serves
until all workers have finished, and exits. A controller for it is C<$AI::MXNet::KVStoreServer::controller>, set in a C<BEGIN>
block before C<use AI::MXNet>.

=head1 METHODS

=head2 new(kvstore => $kv, controller => $code), run, _controller

=cut
