package Polyverso::Gossip;

# Names only: the work is in the C functions.

use strict;
use warnings;

use parent 'Polyverso::Handle';

use overload '""' => 'text', bool => sub { 1 }, fallback => 1;

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

sub name { $_[0]{name} }

sub _list { my ($arrays) = @_; return ref $arrays eq 'ARRAY' ? @$arrays : $arrays }

# Lets peers see these PDLs, tensors or packed strings, or one of them, as one version.
sub publish {
    my ($self, $arrays, $loss) = @_;
    if (!eval { Polyverso::CAPI::mv_gossip_add($self->{handle}, $_) for _list($arrays); 1 }) {
        my $why = $@;
        eval { Polyverso::CAPI::mv_gossip_publish($self->{handle}, 'nan') };    # drops what was added
        die $why;
    }
    Polyverso::CAPI::mv_gossip_publish($self->{handle}, $loss);
    return;
}

# Whether it began: fetch_probability decides.
sub fetch_start { return $_[0]{fetching} = Polyverso::CAPI::mv_gossip_fetch_start($_[0]{handle}) }

# A hash with factor, peer, peer_clock, peer_loss and bytes; nothing if no peer had anything.
sub fetch_wait {
    my ($self, $loss) = @_;
    my $fetched = Polyverso::CAPI::mv_gossip_fetch_wait($self->{handle}, $loss);
    $self->{fetching} = 0;
    return $fetched->{got} ? $fetched : undef;
}

# The next of the arrays that were fetched: averaged into this one, in place, or copied into it.
sub average { Polyverso::CAPI::mv_gossip_average($_[0]{handle}, $_[1]); return }
sub read    { Polyverso::CAPI::mv_gossip_read($_[0]{handle}, $_[1]);    return }

# The two calls around a step of training. A fetch that is under way still goes on.
sub update_send {
    my ($self, $arrays, $loss) = @_;
    $self->publish($arrays, $loss);
    return $self->{fetching} || $self->fetch_start;
}

# Gives the factor of the peer's share, 0 where nobody was there.
sub update_wait {
    my ($self, $arrays, $loss) = @_;
    my $fetched = $self->fetch_wait($loss) or return 0;
    $self->average($_) for _list($arrays);
    return $fetched->{factor};
}

# How it stands: clock, loss, last factor, and the peers with their scores; for people, and for programs.
sub text  { return Polyverso::CAPI::mv_gossip_state_text($_[0]{handle}, 0) }
sub state { return JSON::PP::decode_json(Polyverso::CAPI::mv_gossip_state_text($_[0]{handle}, $Polyverso::CAPI::MV_JSON)) }
# The same in Prometheus's text format.
sub metrics { return Polyverso::CAPI::mv_gossip_metrics_text($_[0]{handle}) }
sub peers { return @{ $_[0]->state->{peers} } }

# status($file): how all nodes of a configuration stand, as a list of hashes; those that give no answer have `error`.
sub status { return @{ JSON::PP::decode_json(Polyverso::CAPI::mv_gossip_status_text($_[-1], $Polyverso::CAPI::MV_JSON)) } }

sub add_peer    { my ($self, @peer) = @_; Polyverso::CAPI::mv_gossip_add_peer($self->{handle}, @peer); return }
sub remove_peer { my ($self, $name) = @_; Polyverso::CAPI::mv_gossip_remove_peer($self->{handle}, $name); return }

sub closes_with { 'mv_gossip_close' }

1;
