#!/usr/bin/perl
# AllReduceSGD: each step sums the gradients of all ranks and divides the sum by the number of ranks that had one.
#
#     polyverso run -n 4 -- perl examples/distlearn/mnist.pl [--epochs 30] [--batch 8] [--rate 0.3] [--save FOLDER]
#
# The ranks have unequal shares of the images, so some finish an epoch before others. mnist.lua and mnist.py are
# equivalent; ranks of the three languages can train together:
#
#     polyverso run -n 3 -- luajit mnist.lua --- python3 mnist.py --- perl mnist.pl
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

my %asked = Digits::options();
my $node  = Polyverso->init;
my $group = Polyverso::Group->open($node);
my $sgd   = Polyverso::DistLearn::AllReduceSGD->new($group);
my ($train, $test) = Digits::load();
my $mine = Digits::share($train, $group->rank, $group->size);

my $params = Digits::parameters();
$sgd->synchronize_parameters($params);    # start with the same values on all ranks
my $confusion;
for my $epoch (1 .. $asked{epochs}) {
    my $begun = clock_gettime(CLOCK_MONOTONIC);
    $confusion = zeroes(longlong, Digits::CLASSES, Digits::CLASSES);
    my @steps = Digits::batches($mine, $asked{batch}, $group->rank, $epoch);
    for my $batch (@steps) {
        my ($grads, $prediction) = Digits::gradients($params, $batch);
        $sgd->sum_and_normalize_gradients($grads);
        Digits::descend($params, $grads, $asked{rate});
        Digits::count($confusion, $prediction, $batch->{labels});
    }
    $sgd->synchronize_parameters($params);    # validate with the same bits on all ranks
    $group->allreduce_custom($confusion, sub { $_[0] + $_[1] });    # over all ranks; by a function, like in mnist.lua
    printf "epoch %d: %d steps here, %.0f ms, training %.4f, accuracy %.4f\n", $epoch, scalar @steps,
        1000 * (clock_gettime(CLOCK_MONOTONIC) - $begun), Digits::right($confusion), Digits::accuracy($params, $test)
        if $group->rank == 0;
}

say Digits::text($confusion) if $group->rank == 0;
printf "final accuracy %.4f\n", Digits::accuracy($params, $test) if $group->rank == 0;
Digits::save($asked{save}, $group->rank, $params);
$sgd->close;
$group->close;
$node->shutdown;
