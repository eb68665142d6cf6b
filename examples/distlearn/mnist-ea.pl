#!/usr/bin/perl
# AllReduceEA: each rank trains on its own; a shared centre keeps them close.
#
#     polyverso run -n 4 -- perl examples/distlearn/mnist-ea.pl [--tau 10] [--alpha 0.2] [--epochs 30] [--batch 8] [--rate 0.3] [--save FOLDER]
#
# The ranks have unequal shares of the images, so some finish an epoch before others. mnist-ea.lua and mnist_ea.py are
# equivalent; ranks of the three languages can train together:
#
#     polyverso run -n 3 -- luajit mnist-ea.lua --- python3 mnist_ea.py --- perl mnist-ea.pl
use v5.26;
use warnings;

use FindBin;
use lib $FindBin::Bin;
use Digits;
use PDL;
use Polyverso;
use Polyverso::DistLearn;
use Polyverso::Group;
use Time::HiRes qw(clock_gettime CLOCK_MONOTONIC);

my %asked = Digits::options(tau => 10, alpha => 0.2);
my $node  = Polyverso->init;
my $group = Polyverso::Group->open($node);
my $ea    = Polyverso::DistLearn::AllReduceEA->new($group, $asked{tau}, $asked{alpha});
my ($train, $test) = Digits::load();
my $mine = Digits::share($train, $group->rank, $group->size);

my $params = Digits::parameters();
my $centre = Digits::parameters();    # memory for the centre
$ea->synchronize_parameters($params);    # start with the same values on all ranks
my $confusion;
for my $epoch (1 .. $asked{epochs}) {
    my $begun = clock_gettime(CLOCK_MONOTONIC);
    $confusion = zeroes(longlong, Digits::CLASSES, Digits::CLASSES);
    my @steps = Digits::batches($mine, $asked{batch}, $group->rank, $epoch);
    for my $batch (@steps) {
        my ($grads, $prediction) = Digits::gradients($params, $batch);
        Digits::descend($params, $grads, $asked{rate});
        $ea->average_parameters($params);
        Digits::count($confusion, $prediction, $batch->{labels});
    }
    $ea->synchronize_center($params);    # removes the drift of the ranks' centres by rounding
    # The sum over all ranks, and the lowest accuracy of any rank; by functions, like in mnist-ea.lua.
    $group->allreduce_custom($confusion, sub { $_[0] + $_[1] });
    my $worst = pdl([Digits::accuracy($params, $test)->sclr]);
    $group->allreduce_custom($worst, sub { $_[0]->at(0) < $_[1]->at(0) ? $_[0] : $_[1] });
    $ea->read_center($centre);           # the same on all ranks: the result of the training
    printf "epoch %d: %d steps here, %.0f ms, training %.4f, accuracy %.4f, of every rank's own parameters %.4f or more\n", $epoch, scalar @steps,
        1000 * (clock_gettime(CLOCK_MONOTONIC) - $begun), Digits::right($confusion), Digits::accuracy($centre, $test), $worst->at(0)
        if $group->rank == 0;
}

say Digits::text($confusion) if $group->rank == 0;
printf "final accuracy %.4f\n", Digits::accuracy($centre, $test) if $group->rank == 0;
Digits::save($asked{save}, $group->rank, $centre);
$ea->close;
$group->close;
$node->shutdown;
