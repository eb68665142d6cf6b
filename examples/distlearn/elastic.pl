#!/usr/bin/perl
# AllReduceSGD with momentum that trains on when workers die and fresh ones come: the same result as without.
#
#     polyverso run -n 4 --servers 1 --keep-going -- perl examples/distlearn/elastic.pl [--steps 400] [--save FOLDER]
#
# A process that takes the place of a lost one is started with --join 1, and with the settings and the rank of the lost
# one. Until it is there the others wait, so each step has the gradients of all ranks. elastic.lua and elastic.py are
# equivalent; ranks of the three languages can train together.
use v5.26;
use warnings;

use FindBin;
use lib $FindBin::Bin;
use Digits;
use PDL;
use Polyverso;
use Polyverso::DistLearn;
use Polyverso::Group;

use constant { NAME => 'elastic', MOMENTUM => 0.9, PATIENCE => 60 };
my %asked = Digits::options(steps => 400, join => 0, every => 20);
my $node  = Polyverso->init;
my $ranks = $node->num_workers;
my ($train, $test) = Digits::load();
my $mine = Digits::share($train, $node->worker_id, $ranks);

my $params   = Digits::parameters();
my $velocity = { map { $_ => [map { $_->zeroes } @{ $params->{$_} }] } keys %$params };
my $step     = zeroes(1);
my @state    = ((map { my $part = $_; map { @{ $part->{$_} } } sort keys %$part } $params, $velocity), $step);

# The batch of this step: the same for every process that has this rank.
sub batch {
    my $number    = $step->sclr;
    my $per_epoch = int($mine->{labels}->nelem / $asked{batch});
    return (Digits::batches($mine, $asked{batch}, $node->worker_id, int($number / $per_epoch)))[$number % $per_epoch];
}

# A strategy on a new group, whose newcomers get the state of a rank that has been there before.
sub started {
    my ($group) = @_;
    $group->broadcast_many(\@state, root => $group->info->{elder});
    return Polyverso::DistLearn::AllReduceSGD->new($group);
}

my $group = $asked{join} ? Polyverso::Group->join($node, name => NAME, timeout => PATIENCE) : Polyverso::Group->open($node);
my $sgd;
my $ended;
until ($ended) {
    my $grads;
    eval {
        my $grown = $sgd && $group->grow(ranks => $ranks, name => NAME, timeout => PATIENCE);    # none: nothing has changed
        if ($grown) {
            $sgd->close;
            $group->close;
            ($group, $sgd) = ($grown, undef);
            say 'a group of ', $group->size, ', generation ', $group->info->{generation};
        }
        $ended = $sgd && $step->sclr >= $asked{steps};    # all ranks are here
        $sgd //= started($group);
        return 1 if $step->sclr >= $asked{steps};
        ($grads) = Digits::gradients($params, batch());
        $sgd->sum_and_normalize_gradients($grads);
        1;
    } or do {
        my $lost = $@;
        die $lost if !ref $lost || $lost->name ne 'MV_EPEERLOST';
        say 'step ', $step->sclr, ": $lost";
        $sgd //= Polyverso::DistLearn::AllReduceSGD->new($group);    # grow comes next
        next;
    };
    next if !$grads;
    for my $layer (keys %$params) {
        for my $i (0, 1) {
            $velocity->{$layer}[$i] .= MOMENTUM * $velocity->{$layer}[$i] + $grads->{$layer}[$i];
            $params->{$layer}[$i] -= $asked{rate} * $velocity->{$layer}[$i];
        }
    }
    $step += 1;
    say 'step ', $step->sclr, ' is done' if $step->sclr % $asked{every} == 0;
}

printf "loss %.12f, accuracy %.4f\n", Digits::loss($params, $train), Digits::accuracy($params, $test);
Digits::save($asked{save}, $node->worker_id, $params);
$sgd->close;
$group->close;
$node->shutdown;
