# Polyverso::Gossip: two nodes in one process.

use strict;
use warnings;

use Test::More;

use PDL::Lite;
use Polyverso;
use Polyverso::Gossip;

sub lone { my ($name) = @_; my $text = "nodes: [{name: $name, host: 127.0.0.1, port: 0}]\ntimeout_ms: 20000\n"; return Polyverso::Gossip->open(\$text, $name) }

my ($one, $two) = map { lone($_) } qw(one two);
my ($port) = $two->state->{address} =~ /:(\d+)$/;
$one->add_peer('two', '127.0.0.1', $port);
my ($own, $other) = (PDL->zeroes(3), PDL->new(2, 4, 6));
$two->update_send([$other], 1);
is($one->update_send([$own], 1), 1, 'a fetch begins');
is($one->update_send([$own], 1), 1, 'and is under way still');
is($one->update_wait([$own], 1), 0.5, 'and brings something');
is("$own", '[1 2 3]', 'which is averaged in, in place');
is($one->fetch_wait(1), undef, 'nothing comes of no fetch');
is_deeply([map { $_->{fetched} } $one->peers], [1], 'the state tells of it');
like("$one", qr/score 1000/, 'in words, too');
like((eval { $one->publish([PDL->new('nan')], 1); 1 } ? '' : $@->text), qr/NaN/, 'NaN is refused');
ok(!eval { $one->publish([$own, [1]], 1); 1 }, 'an array of Perl is no PDL');
like((eval { $one->publish([], 1); 1 } ? '' : $@->text), qr/nothing was added/, 'and what was added before it is dropped');
$two->publish($other, 1);
$one->update_send($own, 1);
is($one->update_wait($own, 1), 0.5, 'a single PDL is a list of one');
$one->publish($own, (PDL->new(1, 2) ** 2)->avg);
is($one->state->{loss}, 2.5, 'a PDL of one element is a loss');
like((eval { $one->publish($own, PDL->new(1, 2)); 1 } ? '' : $@->text), qr/the loss is .*, not a number/, 'one of two elements is none');
$one->remove_peer('two');
is(scalar $one->peers, 0, 'a peer is removed');
$_->close for $one, $two;
like((eval { $one->fetch_start; 1 } ? '' : "$@"), qr/EHANDLE|handle/i, 'a closed node is told from an open one');

# A PDL's first dimension is the last one of other languages.
{
    my ($own, $other) = map { lone($_) } qw(own other);
    $own->add_peer('other', '127.0.0.1', $other->state->{address} =~ /:(\d+)$/);
    Polyverso::CAPI::mv_gossip_add_shaped($other->handle, PDL->sequence(6), [2, 3]);
    Polyverso::CAPI::mv_gossip_publish($other->handle, 1);
    my ($fits, $not) = (PDL->zeroes(3, 2), PDL->zeroes(2, 3));
    $own->update_send($fits, 1);
    is($own->update_wait($fits, 1), 0.5, 'dimensions in the order of other languages');
    $own->update_send($not, 1);
    is($own->update_wait($not, 1), 0, 'others are refused');
    like($own->state->{peers}[0]{problem}, qr/dimensions of array 0/, 'and told of');
    $own->set_clock(7);
    for my $loss (undef, 'nan') {
        ok(!eval { no warnings; $own->publish($fits, $loss); 1 }, 'a loss that is no number');
        like((eval { $own->publish([], 1); 1 } ? '' : $@->text), qr/nothing was added/, 'leaves nothing behind');
    }
    $own->publish($fits, 1);
    is($own->state->{clock}, 8, 'a clock that was set');
    $_->close for $own, $other;
}

# Both sides of a symmetric exchange.
my @pair = map { my $text = "nodes: [{name: $_, host: 127.0.0.1, port: 0}]\ntimeout_ms: 20000\nexchange: symmetric\n"; Polyverso::Gossip->open(\$text, $_) } qw(a b);
my @ports = map { $_->state->{address} =~ /:(\d+)$/ } @pair;
$pair[0]->add_peer('b', '127.0.0.1', $ports[1]);
$pair[1]->add_peer('a', '127.0.0.1', $ports[0]);
my @models = (PDL->zeroes(3), PDL->new(2, 4, 6));
$pair[$_]->update_send([$models[$_]], 1) for 0, 1;
is($pair[$_]->update_wait([$models[$_]], 1), 0.5, 'an exchange') for 0, 1;
is("@models", '[1 2 3] [1 2 3]', 'in which each takes what the other gives');
is($pair[0]->state->{exchanges}{valid}, 1, 'is counted');
like($pair[1]->metrics, qr/polyverso_gossip_disagreement\{node="b"\} \d/, 'and measured');
$_->close for @pair;
like((eval { Polyverso::Gossip->status('/no/such/file.yaml'); 1 } ? '' : "$@"), qr/no.such.file/, 'a file that is not there is named');

done_testing;
