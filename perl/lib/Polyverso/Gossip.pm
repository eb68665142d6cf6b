package Polyverso::Gossip;

# A node that gossips: publishes a model and averages it with those of its peers. Thin methods over mv_gossip_*, which
# do the work.

use strict;
use warnings;

use parent 'Polyverso::Handle';

use JSON::PP ();
use Polyverso::CAPI ();
use Polyverso::Error;
use Polyverso::Lists ();
use Polyverso::Names ();
use Polyverso::Values ();
use Scalar::Util qw(blessed);

# open($config, $name): $config is the path of a YAML file, or a reference to its text, \$text.
sub open {
    my ($class, $config, $name) = @_;
    Polyverso::Error->_refuse($Polyverso::CAPI::MV_EINVAL,
        'the path of a YAML file or a reference to its text is needed, not ' . Polyverso::Lists::shown($config))
        if ref $config ? ref $config ne 'SCALAR' : !defined $config;
    Polyverso::Error->_refuse($Polyverso::CAPI::MV_EINVAL, 'a text is given in place of the path of a file: pass a reference to it, \\$text')
        if !ref $config && $config =~ /[\n{]/;
    my $handle =
        ref $config
        ? Polyverso::CAPI::mv_gossip_open_text($$config, $name)
        : Polyverso::CAPI::mv_gossip_open($config, $name);
    return (bless { handle => $handle, name => $name }, $class)->_adopt;
}

sub _text { my ($self) = @_; return $self->_state ? $self->SUPER::_text : $self->text }
sub _details { my ($self) = @_; return qq{"$self->{name}"} }

sub name { $_[0]{name} }

sub _list { my ($arrays) = @_; return ref $arrays eq 'ARRAY' ? @$arrays : $arrays }

sub _label { return 'the gossip node' }
sub _loss  { my ($loss) = @_; return Polyverso::Values::number('the loss', $loss) }

# Passes two or more dimensions on in the order of the other languages: the last one varies fastest. In a PDL the first
# one does.
sub _add {
    my ($handle, $array) = @_;
    my @shape =
          !blessed $array                   ? ()
        : $array->isa('PDL')                ? reverse $array->dims
        : $array->isa('Polyverso::Tensor') ? @{ $array->shape }
        :                                     ();
    return Polyverso::CAPI::mv_gossip_add($handle, $array) if @shape < 2 || @shape > 8;
    return Polyverso::CAPI::mv_gossip_add_shaped($handle, $array, \@shape);
}

# Publishes PDLs, tensors or packed strings, or a single one of them, as one version.
sub publish {
    my ($self, $arrays, $loss) = @_;
    my $done = eval {
        my $number = _loss($loss);
        Polyverso::Values::check_bad(_list($arrays));
        _add($self->{handle}, $_) for _list($arrays);
        Polyverso::CAPI::mv_gossip_publish($self->{handle}, $number);
        1;
    };
    return if $done;
    my $why = $@;
    eval { Polyverso::CAPI::mv_gossip_publish($self->{handle}, 'nan') };    # a loss of NaN drops the added arrays
    die $why;
}

# Begins a fetch with the probability fetch_probability; returns whether it has begun.
sub fetch_start { return $_[0]{fetching} = Polyverso::CAPI::mv_gossip_fetch_start($_[0]{handle}) }

# Returns a hash with factor, peer, peer_clock, peer_loss and bytes; undef if no peer had a snapshot.
sub fetch_wait {
    my ($self, $loss) = @_;
    my $number = _loss($loss);
    my $fetched = eval { Polyverso::CAPI::mv_gossip_fetch_wait($self->{handle}, $number) };
    if (!$fetched) {
        my $why = $@;
        $self->{fetching} = 0 if ref $why && $why->isa('Polyverso::Error') && $why->status != $Polyverso::CAPI::MV_EINTR;
        die $why;
    }
    $self->{fetching} = 0;
    return $fetched->{got} ? $fetched : undef;
}

# Average this array in place with the next fetched one, or copy the fetched one into it.
sub average { Polyverso::CAPI::mv_gossip_average($_[0]{handle}, $_[1]); return }
sub read    { Polyverso::CAPI::mv_gossip_read($_[0]{handle}, $_[1]);    return }

# The two calls around a training step. A fetch that is still running continues.
sub update_send {
    my ($self, $arrays, $loss) = @_;
    local @Polyverso::Names::FUNCTION{qw(mv_gossip_add mv_gossip_add_shaped mv_gossip_publish)} = ('$gossip->update_send') x 3;
    $self->publish($arrays, $loss);
    return $self->{fetching} || $self->fetch_start;
}

# Returns the factor, which is the share of the peer's model; 0 if no peer had a snapshot.
sub update_wait {
    my ($self, $arrays, $loss) = @_;
    local @Polyverso::Names::FUNCTION{qw(mv_gossip_fetch_wait mv_gossip_average)} = ('$gossip->update_wait') x 2;
    my $fetched = $self->fetch_wait($loss) or return 0;
    $self->average($_) for _list($arrays);
    return $fetched->{factor};
}

# The node's state: clock, loss, last factor, and the peers with their scores; as text, and as a hash.
sub text  { return Polyverso::CAPI::mv_gossip_state_text($_[0]{handle}, 0) }
sub state { return JSON::PP::decode_json(Polyverso::CAPI::mv_gossip_state_text($_[0]{handle}, $Polyverso::CAPI::MV_JSON)) }
# Sets the node's clock, for example after loading a checkpoint.
sub set_clock {
    my ($self, $clock) = @_;
    Polyverso::CAPI::mv_gossip_set_clock($self->{handle}, Polyverso::Values::number('the clock', $clock));
    return;
}
# The state in Prometheus's text format.
sub metrics { return Polyverso::CAPI::mv_gossip_metrics_text($_[0]{handle}) }
sub peers { return @{ $_[0]->state->{peers} } }

# status($file): the state of all nodes of a configuration, as a list of hashes. Nodes without an answer have `error`.
sub status { return @{ JSON::PP::decode_json(Polyverso::CAPI::mv_gossip_status_text($_[-1], $Polyverso::CAPI::MV_JSON)) } }

sub add_peer {
    my ($self, $name, $host, $port) = @_;
    Polyverso::CAPI::mv_gossip_add_peer($self->{handle}, $name, $host, Polyverso::Values::integer('the port', $port));
    return;
}
sub remove_peer { my ($self, $name) = @_; Polyverso::CAPI::mv_gossip_remove_peer($self->{handle}, $name); return }

sub closes_with { 'mv_gossip_close' }

1;

__END__

=encoding utf8

=head1 NAME

Polyverso::Gossip - a node that averages its model with those of its peers

=head1 SYNOPSIS

    use PDL;
    use Polyverso;
    use Polyverso::Gossip;

    my $config = "nodes: [{name: a, host: 127.0.0.1, port: 0}]\ntimeout_ms: 1000";
    my $gossip = Polyverso::Gossip->open(\$config, 'a');    # or the path of a YAML file
    my $model  = ones(3);
    for my $step (1 .. 3) {
        my $loss = 1 / $step;
        $gossip->update_send([$model], $loss);              # publishes the model, and begins a fetch
        $model -= 0.1;                                      # the training step
        $gossip->update_wait([$model], $loss);              # averages the model in place with a peer's
    }
    $gossip->close;

=head1 DESCRIPTION

Models are PDLs, tensors, also on CUDA devices, or packed strings: one, or a reference to an array of them. A PDL of
dims (3, 2) is an array of shape (2, 3). F<docs/gossip.md> describes the configuration, what a loss does, and the
guarantees. A failed call throws a L<Polyverso::Error>.

=head1 METHODS

=head2 Polyverso::Gossip->open($config, $name)

Opens the node with this name of a configuration: the path of a YAML file, or a reference to its text.

=head2 update_send($arrays, $loss), update_wait($arrays, $loss)

The two calls around a training step. C<update_send> publishes the model and begins a fetch from a peer, unless one is
still running; it returns whether one is. C<update_wait> waits for the fetch, averages the model in place, and returns
the share of the peer's model, or 0 if no peer had a snapshot.

=head2 publish($arrays, $loss)

Publishes the arrays as one version. They are copied.

=head2 fetch_start, fetch_wait($loss)

C<fetch_start> begins a fetch with the configured probability, and returns whether it has begun. C<fetch_wait> returns a
hash with C<factor>, C<peer>, C<peer_clock>, C<peer_loss> and C<bytes>; C<undef> if no peer had a snapshot.

=head2 average($array), read($array)

Average an array in place with the next array of the fetched version, or copy that into it.

=head2 name, state, text, peers, metrics

The node's name; its clock, loss, last factor and peers with their scores, as a hash or as text; the peers, a list of
hashes; the state in Prometheus's text format.

=head2 set_clock($clock)

Sets the node's clock, for example after loading a checkpoint.

=head2 add_peer($name, $host, $port), remove_peer($name)

Change the peers of this node.

=head2 Polyverso::Gossip->status($file)

The states of all nodes of a configuration, a list of hashes. Nodes that do not answer have C<error>.

=head2 handle, close

The C<mv_gossip> for the C functions. C<close> ends the node; so does dropping its last reference.

=cut
