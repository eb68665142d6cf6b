package Polyverso::Gossip;

# Names only: the work is in the C functions.

use strict;
use warnings;

use JSON::PP ();
use Polyverso::CAPI ();
use Polyverso::Error;

# open($config, $name): a YAML file; or its text, \$text.
sub open {
    my ($class, $config, $name) = @_;
    my $handle =
        ref $config
        ? Polyverso::CAPI::mv_gossip_open_text($$config, $name)
        : Polyverso::CAPI::mv_gossip_open($config, $name);
    return bless { handle => $handle, name => $name }, $class;
}

sub handle { $_[0]{handle} }
sub name   { $_[0]{name} }

# Lets peers see these PDLs, tensors or packed strings, as one version.
sub publish {
    my ($self, $arrays, $loss) = @_;
    Polyverso::CAPI::mv_gossip_add($self->{handle}, $_) for @$arrays;
    Polyverso::CAPI::mv_gossip_publish($self->{handle}, $loss);
    return;
}

# Whether it began: fetch_probability decides.
sub fetch_start { return Polyverso::CAPI::mv_gossip_fetch_start($_[0]{handle}) }

# A hash with factor, peer, peer_clock, peer_loss and bytes; nothing if no peer had anything.
sub fetch_wait {
    my ($self, $loss) = @_;
    my $fetched = Polyverso::CAPI::mv_gossip_fetch_wait($self->{handle}, $loss);
    return $fetched->{got} ? $fetched : undef;
}

# The next of the arrays that were fetched: averaged into this one, in place, or copied into it.
sub average { Polyverso::CAPI::mv_gossip_average($_[0]{handle}, $_[1]); return }
sub read    { Polyverso::CAPI::mv_gossip_read($_[0]{handle}, $_[1]);    return }

# The two calls around a step of training.
sub update_send {
    my ($self, $arrays, $loss) = @_;
    $self->publish($arrays, $loss);
    return $self->fetch_start;
}

# Gives the factor of the peer's share, 0 where nobody was there.
sub update_wait {
    my ($self, $arrays, $loss) = @_;
    my $fetched = $self->fetch_wait($loss) or return 0;
    $self->average($_) for @$arrays;
    return $fetched->{factor};
}

sub state { return JSON::PP::decode_json(Polyverso::CAPI::mv_gossip_state_text($_[0]{handle}, $Polyverso::CAPI::MV_JSON)) }
sub peers { return @{ $_[0]->state->{peers} } }

sub add_peer    { my ($self, @peer) = @_; Polyverso::CAPI::mv_gossip_add_peer($self->{handle}, @peer); return }
sub remove_peer { my ($self, $name) = @_; Polyverso::CAPI::mv_gossip_remove_peer($self->{handle}, $name); return }

sub close {
    my ($self) = @_;
    my $handle = $self->{handle} or return;
    $self->{handle} = 0;
    Polyverso::CAPI::mv_gossip_close($handle);
    return;
}

sub DESTROY {
    my ($self) = @_;
    return if ${^GLOBAL_PHASE} eq 'DESTRUCT';
    local $@;
    eval { $self->close };
    return;
}

1;
