#!/usr/bin/perl
# Softmax regression on handwritten digits: one worker, in Perl with PDL. train.py and train.lua are equivalent.
#
#     polyverso run -n 3 -- perl examples/digits/train.pl [--epochs 300] [--rate 2] [--report 5] [--save FOLDER]
#
# A single worker trains on all images, each of n workers on every n-th one. All share one table of 65 x 10 weights.
use v5.26;
use warnings;

use FindBin;
use Getopt::Long;
use PDL;
use Polyverso;
use Time::HiRes qw(clock_gettime CLOCK_MONOTONIC);

use constant { PIXELS => 64, DIGITS => 10 };

# Returns inputs and labels for training, then the same for testing. PDL names columns first: inputs are (65, images),
# weights (10, 65), labels (10, images) and one-hot. An input is 64 pixels of 0 .. 1 and a constant 1.
sub read_digits {
    open my $file, '-|', 'gzip', '-dc', "$FindBin::Bin/../../data/digits.csv.gz" or die "gzip: $!\n";
    my $numbers = pdl(map { chomp; [split /,/] } <$file>);
    close $file or die "gzip ended with $?\n";
    my $count  = $numbers->dim(1);
    my $pixels = $numbers->slice([0, PIXELS - 1]) / 16;
    my $inputs = $pixels->append(ones(1, $count));
    my $labels = $numbers->slice([PIXELS, PIXELS]) == sequence(DIGITS);
    my $test   = sequence($count) % 4 == 3;
    return map { my $images = $_; map { $_->dice_axis(1, $images)->sever } $inputs, $labels } which(!$test), which($test);
}

sub probabilities {
    my ($weights, $inputs) = @_;
    my $scores = $inputs x $weights;
    $scores = exp($scores - $scores->maximum->dummy(0));
    return $scores / $scores->sumover->dummy(0);
}

# The gradient of the summed cross entropy.
sub gradient {
    my ($weights, $inputs, $labels) = @_;
    return $inputs->transpose x (probabilities($weights, $inputs) - $labels);
}

sub loss {
    my ($weights, $inputs, $labels) = @_;
    return -log((probabilities($weights, $inputs) * $labels)->sumover)->avg;
}

sub accuracy {
    my ($weights, $inputs, $labels) = @_;
    return (($inputs x $weights)->maximum_ind == $labels->maximum_ind)->davg;
}

my %options = (epochs => 300, rate => 2, report => 5);
GetOptions(\%options, 'epochs=i', 'rate=f', 'report=i', 'save=s') or die "usage: see the beginning of $0\n";
STDOUT->autoflush;

my ($train_inputs, $train_labels, $test_inputs, $test_labels) = read_digits();
my $node   = Polyverso->init;    # sync or async, as the launcher's options say
my $table  = $node->matrix(rows => PIXELS + 1, cols => DIGITS);
my $images = $train_inputs->dim(1);
my ($inputs, $labels) = map { $_->slice('', [$node->worker_id, $images - 1, $node->num_workers])->sever } $train_inputs, $train_labels;
my $step = -$options{rate} / $images;

$node->barrier;
my $begun = clock_gettime(CLOCK_MONOTONIC);
for my $epoch (0 .. $options{epochs} - 1) {
    my $weights = $table->get->double;
    printf "epoch %d loss %.4f accuracy %.4f seconds %.3f\n", $epoch, loss($weights, $train_inputs, $train_labels),
        accuracy($weights, $test_inputs, $test_labels), clock_gettime(CLOCK_MONOTONIC) - $begun
        if $node->is_master && $epoch % $options{report} == 0;
    $node->report(loss => loss($weights, $inputs, $labels)) if $epoch % $options{report} == 0;    # for `polyverso dashboard`
    $table->add($step * gradient($weights, $inputs, $labels), forget => 1);
}

$node->barrier;    # afterwards the table has all adds of all workers
my $weights = $table->get;
if (defined $options{save}) {
    my $path = sprintf '%s/weights-%d.txt', $options{save}, $node->worker_id;
    open my $file, '>', $path or die "$path: $!\n";
    printf $file "%.9g\n", $_ for $weights->list;    # nine digits distinguish any two float32 values
    close $file or die "$path: $!\n";
}

# Only one worker reads here. A get would count in the rounds of sync mode; a peek does not.
printf "final accuracy %.4f seconds %.3f\n", accuracy($table->peek->double, $test_inputs, $test_labels),
    clock_gettime(CLOCK_MONOTONIC) - $begun
    if $node->is_master;
$node->shutdown;
