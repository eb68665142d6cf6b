package Digits;

# The model of mnist.pl and mnist-ea.pl: a network with one hidden layer, trained on the images of data/digits.csv.gz.
#
# PDL names columns first: inputs are (pixels, images), the weights of a layer (outputs, inputs). The memory layout is
# that of the other languages.

use v5.26;
use warnings;

use FindBin;
use Getopt::Long;
use List::Util qw(sum0 shuffle);
use PDL;

use constant { PIXELS => 64, HIDDEN => 32, CLASSES => 10 };

# Returns { inputs, labels } for training, then for testing: every fourth image.
sub load {
    open my $file, '-|', 'gzip', '-dc', "$FindBin::Bin/../../data/digits.csv.gz" or die "gzip: $!\n";
    my $numbers = pdl(map { chomp; [split /,/] } <$file>);
    close $file or die "gzip ended with $?\n";
    my $inputs = $numbers->slice([0, PIXELS - 1]) / 16;
    my $labels = $numbers->slice('(' . PIXELS . ')')->long;
    my $test   = sequence($numbers->dim(1)) % 4 == 3;
    return map { pick({ inputs => $inputs, labels => $labels }, $_) } which(!$test), which($test);
}

sub pick {
    my ($set, $images) = @_;
    return { inputs => $set->{inputs}->dice_axis(1, $images)->sever, labels => $set->{labels}->index($images)->sever };
}

# The images of one rank. The shares are uneven: the last rank has nearly twice as many as the first.
sub share {
    my ($set, $rank, $ranks) = @_;
    my @weights = map { $ranks + 1 + $_ } 0 .. $ranks - 1;
    my $count   = $set->{labels}->nelem;
    my ($first, $last) = map { int($count * sum0(@weights[0 .. $_ - 1]) / sum0(@weights)) } $rank, $rank + 1;
    return pick($set, sequence(indx, $last - $first) + $first);
}

# The batches of one epoch: the rank's images in a new order. Images that do not fill a batch are skipped in this epoch.
sub batches {
    my ($set, $size, $rank, $epoch) = @_;
    CORE::srand(1000 * $epoch + $rank);
    my @order = shuffle(0 .. $set->{labels}->nelem - 1);
    return map { pick($set, indx(@order[$_ * $size .. ($_ + 1) * $size - 1])) } 0 .. int(@order / $size) - 1;
}

# Random weights around zero, from Perl's own generator.
sub weights {
    my ($outputs, $inputs) = @_;
    return 0.2 * (pdl([map { rand } 1 .. $outputs * $inputs])->reshape($outputs, $inputs) - 0.5);
}

# Initial parameters, the same on all ranks. Gradients have the same form.
sub parameters {
    CORE::srand(0);
    return {
        hidden => [weights(HIDDEN, PIXELS),  zeroes(HIDDEN)],
        linear => [weights(CLASSES, HIDDEN), zeroes(CLASSES)],
    };
}

# Returns the class probabilities of each image, and the activations of the hidden layer.
sub predict {
    my ($params, $inputs) = @_;
    my $hidden = tanh($inputs x $params->{hidden}[0] + $params->{hidden}[1]);
    my $scores = $hidden x $params->{linear}[0] + $params->{linear}[1];
    my $powers = exp($scores - $scores->maximum->dummy(0));
    return ($powers / $powers->sumover->dummy(0), $hidden);
}

# Returns the gradients of the mean cross entropy over a batch, and the predictions.
sub gradients {
    my ($params, $batch) = @_;
    my ($prediction, $hidden) = predict($params, $batch->{inputs});
    my $errors = ($prediction - (sequence(CLASSES) == $batch->{labels}->dummy(0))) / $batch->{labels}->nelem;
    my $back   = ($errors x $params->{linear}[0]->transpose) * (1 - $hidden**2);
    return ({
        hidden => [$batch->{inputs}->transpose x $back, $back->transpose->sumover],
        linear => [$hidden->transpose x $errors,        $errors->transpose->sumover],
    }, $prediction);
}

sub descend {
    my ($params, $grads, $rate) = @_;
    for my $layer (keys %$params) {
        $params->{$layer}[$_] -= $rate * $grads->{$layer}[$_] for 0, 1;
    }
    return;
}

# Adds the predictions of a batch to the confusion matrix (guess, label).
sub count {
    my ($confusion, $prediction, $labels) = @_;
    indadd(ones(longlong, $labels->nelem), $prediction->maximum_ind + CLASSES * $labels, $confusion->flat);
    return;
}

sub right { my ($confusion) = @_; return $confusion->diagonal(0, 1)->dsum / ($confusion->dsum || 1) }

sub accuracy {
    my ($params, $set) = @_;
    return ((predict($params, $set->{inputs}))[0]->maximum_ind == $set->{labels})->davg;
}

# The mean cross entropy.
sub loss {
    my ($params, $set) = @_;
    my ($prediction) = predict($params, $set->{inputs});
    return -log($prediction->index($set->{labels}))->davg;
}

sub text {
    my ($confusion) = @_;
    my @lines = ('taken for   ' . join '    ', 0 .. CLASSES - 1);
    push @lines, sprintf('%8d  ', $_) . join ' ', map { sprintf '%4d', $_ } $confusion->slice(":,($_)")->list for 0 .. CLASSES - 1;
    return join "\n", @lines, sprintf(' + global correct: %.2f%%', 100 * right($confusion));
}

# options(%defaults): parses the command line. Each default adds a numeric option to the common ones.
sub options {
    my %asked = (epochs => 30, batch => 8, rate => 0.3, @_);
    GetOptions(\%asked, 'save=s', map { "$_=f" } grep { $_ ne 'save' } keys %asked) or die "usage: see the beginning of $0\n";
    STDOUT->autoflush;
    return %asked;
}

# Writes the parameters, one number per line, for comparison between programs.
sub save {
    my ($folder, $rank, $params) = @_;
    return if !defined $folder;
    open my $file, '>', "$folder/parameters-$rank.txt" or die "$folder: $!\n";
    for my $layer (sort keys %$params) {
        printf $file "%.17g\n", $_ for map { $_->list } @{ $params->{$layer} };
    }
    close $file or die "$folder: $!\n";
    return;
}

1;
