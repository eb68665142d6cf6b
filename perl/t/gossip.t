# Polyverso::Gossip: two nodes of one process.

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
is($one->update_wait([$own], 1), 0.5, 'and brings something');
is("$own", '[1 2 3]', 'which is averaged in, in place');
is($one->fetch_wait(1), undef, 'nothing comes of no fetch');
is_deeply([map { $_->{fetched} } $one->peers], [1], 'the state tells of it');
like((eval { $one->publish([PDL->new('nan')], 1); 1 } ? '' : $@->text), qr/NaN/, 'NaN is refused');
$one->remove_peer('two');
is(scalar $one->peers, 0, 'a peer is removed');
$_->close for $one, $two;
like((eval { $one->fetch_start; 1 } ? '' : "$@"), qr/EHANDLE|handle/i, 'a closed node is told from an open one');

done_testing;
