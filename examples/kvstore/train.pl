#!/usr/bin/perl
# A small neural network on handwritten digits, data-parallel through a key-value store: one worker, in Perl with
# AI::MXNet's arrays and PDL. train.py and train.lua are equivalent; all three can share one store.
#
#     polyverso run -n 4 --servers 2 -- perl examples/kvstore/train.pl [--type dist_async] [--epochs 30] [--batch 50]
#         [--rate 0.01] [--threshold 2] [--save FOLDER [--resume]]
#
# The network is 64 pixels, 32 hidden units (tanh), 10 digits (softmax): keys w1, b1, w2, b2. Each of n workers takes
# every n-th image. A step pushes the gradient summed over a batch; the store applies Adam, at a decreasing rate.
# Gradients are sent as two bits per element, unless --threshold is 0. With --save, worker 0 writes the parameters and
# Adam's states after each epoch; --resume starts from them.
use v5.26;
use warnings;

use AI::MXNet qw(mx);
use FindBin;
use Getopt::Long;
use PDL;
use Time::HiRes qw(clock_gettime CLOCK_MONOTONIC);

use constant { PIXELS => 64, HIDDEN => 32, DIGITS => 10 };
my @KEYS = qw(w1 b1 w2 b2);

# PDL names columns first: inputs are (64, images), labels (10, images) and one-hot. Returns inputs and labels for
# training, then for testing: every fourth image.
sub read_digits {
    open my $file, '-|', 'gzip', '-dc', "$FindBin::Bin/../../data/digits.csv.gz" or die "gzip: $!\n";
    my $numbers = pdl(float, [map { chomp; [split /,/] } <$file>]);
    close $file or die "gzip ended with $?\n";
    my $inputs = $numbers->slice([0, PIXELS - 1]) / 16;
    my $labels = $numbers->slice([PIXELS, PIXELS]) == sequence(DIGITS);
    my $test   = sequence($numbers->dim(1)) % 4 == 3;
    return map { my $images = $_; map { $_->dice_axis(1, $images)->sever } $inputs, $labels->float } which(!$test), which($test);
}

# Initial values, the same in all languages. The store takes those of worker 0.
sub first_values {
    my $normal = sub { my ($seed, @shape) = @_; mx->nd->array(Polyverso::Tensor->normal(\@shape, $seed, 0, 0.1)->pdl) };
    return [$normal->(1, PIXELS, HIDDEN), mx->nd->zeros([HIDDEN]), $normal->(2, HIDDEN, DIGITS), mx->nd->zeros([DIGITS])];
}

# The hidden units and the probabilities. The parameters are PDLs.
sub forward {
    my ($inputs, $w1, $b1, $w2, $b2) = @_;
    my $hidden = tanh($inputs x $w1 + $b1);
    my $scores = $hidden x $w2 + $b2;
    $scores = exp($scores - $scores->maximum->dummy(0));
    return ($hidden, $scores / $scores->sumover->dummy(0));
}

# The gradients of the summed cross entropy, by key.
sub gradients {
    my ($inputs, $labels, @values) = @_;
    my ($hidden, $chances) = forward($inputs, @values);
    my $errors = $chances - $labels;
    my $below  = ($errors x $values[2]->transpose) * (1 - $hidden * $hidden);
    return map { mx->nd->array($_) } $inputs->transpose x $below, $below->transpose->sumover, $hidden->transpose x $errors,
        $errors->transpose->sumover;
}

sub loss_and_accuracy {
    my ($values, $train_inputs, $train_labels, $test_inputs, $test_labels) = @_;
    my $chances = (forward($train_inputs, @$values))[1];
    my $guesses = (forward($test_inputs, @$values))[1]->maximum_ind;
    return (-log(($chances * $train_labels)->sumover)->avg, ($guesses == $test_labels->maximum_ind)->davg);
}

# Saves an epoch. The file `epoch` names the one that is complete; the files of a later epoch may be incomplete.
sub save {
    my ($kv, $folder, $epoch, $values) = @_;
    my %values;
    @values{@KEYS} = @$values;
    mx->nd->save("$folder/$epoch.params", \%values);
    $kv->save_optimizer_states("$folder/$epoch.states", dump_optimizer => 1);
    open my $file, '>', "$folder/epoch.new" or die "$folder/epoch.new: $!\n";
    print $file "$epoch\n";
    close $file and rename "$folder/epoch.new", "$folder/epoch" or die "$folder/epoch: $!\n";
    unlink map { "$folder/" . ($epoch - 1) . ".$_" } qw(params states);
}

my %options = (type => 'dist_sync', epochs => 30, batch => 50, rate => 0.01, threshold => 2);
GetOptions(\%options, 'type=s', 'epochs=i', 'batch=i', 'rate=f', 'threshold=f', 'save=s', 'resume') or die "usage: see the beginning of $0\n";
STDOUT->autoflush;

my @digits = read_digits();
my ($all_inputs, $all_labels) = @digits;
my $kv = mx->kv->create($options{type});
my ($rank, $workers) = ($kv->rank, $kv->num_workers);

my ($values, $epoch) = (first_values(), 0);
if ($options{resume}) {
    open my $file, '<', "$options{save}/epoch" or die "$options{save}/epoch: $!\n";
    chomp(my $saved = <$file>);
    $values = [@{ mx->nd->load("$options{save}/$saved.params") }{@KEYS}];
    $epoch = $saved + 1;
}
$kv->broadcast(\@KEYS, $values, out => $values);
$kv->set_gradient_compression({ type => '2bit', threshold => $options{threshold} }) if $options{threshold};
my $steps = int(int($all_inputs->dim(1) / $workers) / $options{batch});    # the same number on all workers
if ($rank == 0) {
    my $updates  = $options{epochs} * $steps * ($options{type} =~ /async/ ? $workers : 1);
    my $schedule = AI::MXNet::CosineScheduler->new(max_update => $updates, base_lr => $options{rate}, final_lr => $options{rate} / 10);
    $kv->set_optimizer(mx->optimizer->create('adam', lr_scheduler => $schedule, rescale_grad => 1 / ($options{batch} * $workers)));
    $kv->load_optimizer_states("$options{save}/" . ($epoch - 1) . '.states') if $options{resume};
}
$kv->_barrier;

my ($inputs, $labels) = map { $_->slice('', [$rank, $all_inputs->dim(1) - 1, $workers])->sever } $all_inputs, $all_labels;
my $begun = clock_gettime(CLOCK_MONOTONIC);
my @views = map { $_->aspdl_view } @$values;    # views of the values' memory: each pull updates them
for (; $epoch < $options{epochs}; $epoch++) {
    for my $step (0 .. $steps - 1) {
        my $batch = ['', [$step * $options{batch}, ($step + 1) * $options{batch} - 1]];
        my @gradients = gradients((map { $_->slice(@$batch) } $inputs, $labels), @views);
        $kv->pushpull(\@KEYS, \@gradients, out => $values);
        $_->wait_to_read for @$values;
    }
    if ($rank == 0) {
        printf "epoch %d loss %.4f accuracy %.4f seconds %.3f\n", $epoch, loss_and_accuracy(\@views, @digits),
            clock_gettime(CLOCK_MONOTONIC) - $begun;
    }
    next unless $options{save};
    $kv->_barrier;    # no worker pushes while the states are gathered
    save($kv, $options{save}, $epoch, $values) if $rank == 0;
    $kv->_barrier;
}

$kv->_barrier;
$kv->pull(\@KEYS, out => $values);
$_->wait_to_read for @$values;
printf "final accuracy %.4f seconds %.3f\n", (loss_and_accuracy(\@views, @digits))[1], clock_gettime(CLOCK_MONOTONIC) - $begun if $rank == 0;
