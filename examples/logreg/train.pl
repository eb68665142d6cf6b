#!/usr/bin/perl
# Sparse logistic regression on libsvm files, by FTRL-Proximal on the servers: one worker, in plain Perl. train.py is
# equivalent and describes the method.
#
#     polyverso run -n 2 --servers 1 -- perl examples/logreg/train.pl [--folder build/logreg] [--epochs 3] [--batch 200]
#                                                                     [--alpha 0.1] [--l1 1] [--l2 0]
use v5.26;
use warnings;

use FindBin;
use Getopt::Long;
use Polyverso;
use Time::HiRes qw(clock_gettime CLOCK_MONOTONIC);

# Reads at most $size lines of the file, each as [label, {feature => value}]. Returns none at the end of the file.
sub read_batch {
    my ($file, $size) = @_;
    my @lines;
    while (@lines < $size && defined(my $text = <$file>)) {
        my ($label, @pairs) = split /[\s:]+/, $text;
        push @lines, [$label > 0 ? 1 : 0, {@pairs}];
    }
    return @lines;
}

# The features of some lines, without repetition.
sub keys_of {
    my %seen;
    return [grep { !$seen{$_}++ } map { keys %{ $_->[1] } } @_];
}

# The weights of these features, read with $method (get or peek), as {feature => weight}.
sub weights_of {
    my ($table, $method, $keys) = @_;
    my %weights;
    @weights{@$keys} = @{ $table->$method(keys => $keys, as => 'array') };
    return \%weights;
}

sub score {
    my ($line, $weights) = @_;
    my ($features, $sum) = ($line->[1], 0);
    $sum += $weights->{$_} * $features->{$_} for keys %$features;
    return $sum;
}

# The loss: -log of the probability of the label.
sub loss {
    my ($score, $label) = @_;
    my $against = $label ? -$score : $score;
    return $against > 30 ? $against : log(1 + exp $against);
}

sub now { return clock_gettime(CLOCK_MONOTONIC) }

sub train {
    my ($node, $table, %options) = @_;
    my @paths = sort glob "$options{folder}/train*.svm";
    my @mine  = @paths[grep { $_ % $node->num_workers == $node->worker_id } 0 .. $#paths];
    my $begun = now();
    for my $epoch (0 .. $options{epochs} - 1) {
        my ($count, $total) = (0, 0);
        for my $path (@mine) {
            open my $file, '<', $path or die "$path: $!\n";
            while (my @lines = read_batch($file, $options{batch})) {
                my $keys    = keys_of(@lines);
                my $weights = weights_of($table, 'get', $keys);
                my %slope;
                for my $line (@lines) {
                    my ($label, $features) = @$line;
                    my $score = score($line, $weights);
                    my $error = 1 / (1 + exp -$score) - $label;
                    $slope{$_} += $error * $features->{$_} for keys %$features;
                    $total += loss($score, $label);    # progressive loss: before this epoch learns from the line
                }
                $table->add([@slope{@$keys}], keys => $keys, forget => 1);
                $count += @lines;
            }
        }
        printf "epoch %d loss %.4f lines/s of this worker %.0f\n", $epoch, $total / ($count || 1),
            ($epoch + 1) * $count / (now() - $begun)
            if $node->is_master;
    }
    return;
}

# The probability that a random example of label 1 scores higher than one of label 0.
sub area_under_curve {
    my @pairs = sort { $a->[0] <=> $b->[0] } @_;    # [score, label]
    my ($ranks, $ones) = (0, 0);
    for (my $i = 0; $i < @pairs;) {
        my $j = $i;
        $j++ while $j < @pairs && $pairs[$j][0] == $pairs[$i][0];
        my $here = grep { $_->[1] } @pairs[$i .. $j - 1];
        $ranks += $here * ($i + $j - 1) / 2;        # equal scores share their mean rank
        $ones  += $here;
        $i = $j;
    }
    return ($ranks - $ones * ($ones - 1) / 2) / ($ones * (@pairs - $ones));
}

# Prints the quality of the weights on test.svm, and their number.
sub judge {
    my ($table, %options) = @_;
    my (@pairs, $total);
    open my $file, '<', "$options{folder}/test.svm" or die "$options{folder}/test.svm: $!\n";
    while (my @lines = read_batch($file, 1000)) {
        my $weights = weights_of($table, 'peek', keys_of(@lines));
        push @pairs, map { [score($_, $weights), $_->[0]] } @lines;
    }
    $total += loss(@$_) for @pairs;
    my $right = grep { ($_->[0] > 0) == ($_->[1] > 0) } @pairs;
    my ($stored, $zero) = (0, 0);
    my $each = $table->scan(as => 'array');
    while (my ($keys, $weights) = $each->()) {
        $stored += @$keys;
        $zero   += grep { $_ == 0 } @$weights;
    }
    printf "final accuracy %.4f auc %.4f loss %.4f stored %d zero %d\n", $right / @pairs, area_under_curve(@pairs),
        $total / @pairs, $stored, $zero;
    return;
}

$| = 1;
my %options = (folder => "$FindBin::Bin/../../build/logreg", epochs => 3, batch => 200, alpha => 0.1, l1 => 1, l2 => 0);
GetOptions(\%options, 'folder=s', 'epochs=i', 'batch=i', 'alpha=f', 'l1=f', 'l2=f') or exit 2;
die "train.pl: there is no test.svm in $options{folder}: run testaments.py first\n"
    unless -e "$options{folder}/test.svm";
my $node  = Polyverso->init;
my $table = $node->keyvalue(
    cols    => 1,
    name    => 'weights',
    updater => sprintf('ftrl alpha=%g l1=%g l2=%g', @options{qw(alpha l1 l2)}),
);
train($node, $table, %options);
$node->barrier;    # afterwards the table has all gradients of all workers
judge($table, %options) if $node->is_master;
$node->shutdown;
