package TestCluster;

# Runs scripts as the processes of one cluster. Rank 0 inherits the listening socket, so the port is never a guess.

use strict;
use warnings;

use File::Temp ();
use IO::Socket::INET;

delete @ENV{ grep { /\APOLYVERSO_/ } keys %ENV };

sub new {
    my ($class, $nodes) = @_;
    local $^F = 1000;    # descriptors below stay open across exec
    my $listener = IO::Socket::INET->new(Listen => 8, LocalAddr => '127.0.0.1') or die "listen: $!";
    return bless { listener => $listener, nodes => $nodes, pids => [] }, $class;
}

# Starts a script as the next rank; returns its process id and the file with its output.
sub start {
    my ($self, $script) = @_;
    my $rank = @{ $self->{pids} };
    my %place = (POLYVERSO_NODES => $self->{nodes}, POLYVERSO_RANK => $rank, POLYVERSO_MASTER => '127.0.0.1:' . $self->{listener}->sockport);
    $place{POLYVERSO_LISTEN_FD} = fileno $self->{listener} if $rank == 0;
    return $self->start_as(\%place, $script);
}

# Starts a script with these environment variables, and no other POLYVERSO_ ones.
sub start_as {
    my ($self, $variables, $script) = @_;
    my $output = File::Temp->new;
    my $pid    = fork // die "fork: $!";
    if (!$pid) {
        open STDOUT, '>&', $output or die;
        open STDERR, '>&', $output or die;
        @ENV{ keys %$variables } = values %$variables;
        close $self->{listener} unless $variables->{POLYVERSO_LISTEN_FD};
        $SIG{INT} = 'DEFAULT';    # a background job of a shell without job control ignores it
        exec $^X, '-e', "\$| = 1; use Polyverso; $script" or die;
    }
    push @{ $self->{pids} }, $pid;
    return ($pid, $output);
}

sub text { my ($file) = @_; seek $file, 0, 0; local $/; return <$file> // '' }

# Waits up to 10 s until the file contains the text; returns whether it does.
sub await {
    my ($file, $text) = @_;
    for (1 .. 500) {
        return 1 if text($file) =~ /\Q$text/;
        select undef, undef, undef, 0.02;
    }
    return 0;
}

# Waits for the process; returns its wait status, or undef after `seconds`.
sub finish {
    my ($self, $pid, $seconds) = @_;
    for (1 .. $seconds * 50) {
        if (waitpid($pid, 1) == $pid) {    # 1: WNOHANG
            $self->{pids} = [map { $_ == $pid ? 0 : $_ } @{ $self->{pids} }];
            return $?;
        }
        select undef, undef, undef, 0.02;
    }
    return undef;
}

sub DESTROY {
    my ($self) = @_;
    local $?;
    for my $pid (grep { $_ } @{ $self->{pids} }) {
        kill KILL => $pid;
        waitpid $pid, 0;
    }
}

1;
