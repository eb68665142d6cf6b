# One worker of mixed_test.py's stores, in Perl; store.py and store.lua do the same. Prints the result of every pull.

use strict;
use warnings;
use Polyverso;
use Polyverso::KVStore;

my ($SHAPE, $ROUNDS) = ([5, 3], 6);

# Thirds are not exact in float, so another order of the additions gives other bits.
sub delta {
    my ($worker, $turn) = @_;
    my @values = map { (($_ * 7 + $worker * 13 + $turn * 29) % 31 - 15) / 3 * 10**$worker } 0 .. 14;
    return Polyverso::Tensor->copy_of(\@values)->reshape($SHAPE);
}

sub show { my ($name, $values) = @_; print join(' ', $name, map { sprintf '%.9g', $_ } map { @$_ } @{ $values->to_list }), "\n" }

my $node = Polyverso->init;
my ($named, $numbered) = map { Polyverso::KVStore->create('dist_sync') } 1 .. 2;
my $worker = $named->rank;
my ($w, $b, $out) = (delta($worker, 99), delta($worker, 98), Polyverso::Tensor->zeros($SHAPE));
$named->init(['w', 'b'], [$w, $b]);
$numbered->init([3, 7], [$w, $b]);
$named->set_optimizer('mx.sgd learning_rate=0.1 momentum=0.9') if $worker == 0;
$named->barrier;
for my $turn (0 .. $ROUNDS - 1) {
    $named->push(['w', 'b'], [[delta($worker, $turn), delta($worker, $turn + 50)], [delta($worker, -$turn)]]);
    $numbered->push(7, delta($worker, $turn));
    $named->pull(['b', 'w'], [$b, $w]);
    $numbered->pull(7, $out);
    show(@$_) for [w => $w], [b => $b], [7 => $out];
}
$numbered->pull(3, $out);
show(3 => $out);
$node->shutdown;
