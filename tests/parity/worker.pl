# One worker of mixed_test.py, in Perl; worker.py and worker.lua do the same. Prints the result of every get.

use strict;
use warnings;
use Polyverso;

my ($ROWS, $COLS, $ROUNDS) = (5, 3, 12);

# Thirds are not exact in float, so another order of the additions gives other bits.
sub delta {
    my ($worker, $turn) = @_;
    return [map { (($_ * 7 + $worker * 13 + $turn * 29) % 31 - 15) / 3 * 10**$worker } 0 .. $ROWS * $COLS - 1];
}

sub show { my ($name, $values) = @_; print join(' ', $name, map { sprintf '%.9g', $_ } map { @$_ } @$values), "\n" }

my $node   = Polyverso->init;
my $table  = $node->matrix(rows => $ROWS, cols => $COLS, name => 'mixed');
my $worker = $node->worker_id;
for my $turn (0 .. $ROUNDS - 1) {
    $table->add(delta($worker, $turn), forget => 1);
    $table->add([(1 / 3, -2 / 3, 1 + $worker) x 2], rows => [$worker, $ROWS - 1]);
    show(get => $table->get(as => 'array'));
}
$node->barrier;
show(end => $table->peek(as => 'array'));
$node->shutdown;
