#!/usr/bin/perl
# A worker of the demo, in Perl with PDL: takes steps of softmax regression as it is told. train.py has the explanation; train.py and
# train.lua are equivalent.
#
#     train.pl PLACE
use v5.26;
use warnings;

use FindBin;
use PDL;
use Polyverso;

use constant { PIXELS => 64, DIGITS => 10, PLACES => 4, BATCH => 16, RATE => 0.02 };

# Returns inputs (65, images) and one-hot labels (10, images): PDL names columns first.
sub read_images {
    open my $file, '-|', 'gzip', '-dc', "$FindBin::Bin/../../data/digits.csv.gz" or die "gzip: $!\n";
    my $numbers = pdl(map { chomp; [split /,/] } <$file>);
    close $file or die "gzip ended with $?\n";
    my $pixels = $numbers->slice([0, PIXELS - 1]) / 16;
    return ($pixels->append(ones(1, $numbers->dim(1))), $numbers->slice([PIXELS, PIXELS]) == sequence(DIGITS));
}

my $place = shift // die "usage: $0 PLACE\n";
STDOUT->autoflush;
my ($inputs, $labels) = read_images();
my $node  = Polyverso->init;    # the environment has the cluster's address and this worker's rank
my $table = $node->matrix(rows => PIXELS + 1, cols => DIGITS + PLACES, name => 'weights');
my $count = ones(1, PIXELS + 1)->glue(0, zeroes(PLACES - 1, PIXELS + 1))->rotate($place);    # every row counts the steps of each worker
say 'ready';
while (my $line = <STDIN>) {
    my $images  = ((sequence(indx, BATCH) + $line * BATCH) % $labels->dim(1));
    my ($x, $y) = map { $_->dice_axis(1, $images) } $inputs, $labels;
    my $scores  = $x x $table->get->double->slice([0, DIGITS - 1]);
    my $powers  = exp($scores - $scores->maximum->dummy(0));
    my $errors  = $powers / $powers->sumover->dummy(0) - $y;
    $table->add((-RATE / BATCH * ($x->transpose x $errors))->append($count));
    print $line;
}
$node->shutdown;
