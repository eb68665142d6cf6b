# A node of gossip_test.py, in Perl: see node.c.    node.pl NAME VALUE

use strict;
use warnings;

use PDL::Lite;
use Polyverso;
use Polyverso::Gossip;

$| = 1;
my ($name, $value) = @ARGV;
my $model = PDL->zeroes(PDL::float(), 1000);
$model += $value;
my $text = "nodes: [{name: $name, host: 127.0.0.1, port: 0}]\ntimeout_ms: 20000\n";
my $node = Polyverso::Gossip->open(\$text, $name);
print 'listens ', $node->state->{address} =~ /:(\d+)$/, "\n";
while (my $line = <STDIN>) {
    my @words = split ' ', $line;
    if ($words[0] eq 'peer') { $node->add_peer($words[1], '127.0.0.1', $words[2]); next }
    $node->update_send([$model], 1);
    print 'stepped ', $node->update_wait([$model], 1), ' ', $model->at(999), "\n";
}
