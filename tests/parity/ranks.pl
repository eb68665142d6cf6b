# One rank of mixed_test.py, in Perl; ranks.py and ranks.lua do the same. All ranks print the same lines.

use strict;
use warnings;
use PDL::Lite;
use Polyverso;
use Polyverso::DistLearn;
use Polyverso::Group;

sub show { my ($name, @values) = @_; print join(' ', $name, map { sprintf '%g', $_ } map { ref $_ ? $_->list : $_ } @values), "\n" }

sub keep_greater { my ($mine, $theirs) = @_; return $theirs->[0]->at(0) > $mine->[0]->at(0) ? $theirs : $mine }

my $node  = Polyverso->init;
my $group = Polyverso::Group->open($node);
my ($rank, $size) = ($group->rank, $group->size);
show(gathered => $group->allgather(PDL::float([[$rank, 10 * $rank]])));
my $part = $group->reduce_scatter(PDL->sequence(2 * $size) * ($rank + 1));
show(scattered => $group->allgather($part));

my $gathered = $group->gather(PDL::float([$rank, 5]), root => 1);
my $own = PDL->zeroes(2);
$group->scatter($own, $rank == 0 ? PDL->sequence(2, $size) : undef);
my $given = $group->alltoall(PDL->sequence($size) + 100 * $rank);
my @rows = map { ($rank + $_) % 3 } 0 .. $size - 1;    # as many from each rank as for it
my $uneven = 0;
$uneven += $_ for @rows;
$uneven = $group->alltoall(PDL->zeroes(PDL::long(), $uneven) + $rank, send_rows => \@rows, receive_rows => \@rows);
my $request = $group->allreduce(PDL->zeroes(2) + $rank + 1, async => 1);
$group->send(PDL::longlong([$rank]), ($rank + 1) % $size, tag => 3);
my $taken  = PDL->zeroes(PDL::longlong(), 1);
my $source = $group->recv($taken, undef, tag => 3);
my $reduced = $request->wait;
show(exchanged => $group->allreduce(PDL->pdl($own->sum, $given->sum - $rank * $size, $uneven->sum + $rank, $uneven->nelem, $taken->at(0) - $source,
    ($source + 1 - $rank) % $size, $reduced->list)));
show('gathered at 1' => $group->broadcast($gathered // PDL->zeroes(PDL::float(), 2, $size), root => 1));

my @best = (PDL::double([($rank * 7 + 1) % 5]), PDL::longlong([$rank]));
my $kept = $group->allreduce_custom(\@best, \&keep_greater);
show(best => $kept, @best);

my $total = PDL->zeroes(3);
for my $step (0 .. $rank) {
    my ($values, $contributors);
    if ($step % 2) {
        $values       = PDL->zeroes(2) + $rank + 1;
        $contributors = $group->allreduce_custom($values, sub { $_[0] + $_[1] });
    }
    else {
        $values       = PDL->zeroes(3)->float + $rank + 1;
        $contributors = $group->allreduce_many([$values]);
    }
    $total += PDL->pdl($contributors, $values->at(0), 1);
}
while (my $coming = $group->drain) {
    my @nothing = map { Polyverso::Tensor->zeros($_->{count}, $_->{dtype}) } @{ $coming->{arrays} };
    if (defined $coming->{op}) { $group->allreduce_many(\@nothing, op => $coming->{op}, draining => 1) }
    else                       { $group->allreduce_custom($nothing[0], sub { $_[0] + $_[1] }, draining => 1) }
    $total += PDL->pdl(0, 0, 1);
}
show(steps => $group->allreduce($total, op => 'max'));

eval { $group->allreduce_custom(PDL->zeroes(2), sub { die "of one's own\n" }) };
print $@ eq "of one's own\n" || ref $@ && $@->name eq 'MV_ECANCELED' ? "failed\n" : $@;
show(after => $group->allreduce(PDL->ones(1)));

# Numeric keys come before text keys, in numeric order.
my %named = map { $_->[0] => PDL->zeroes(1) + $_->[1] } ['b', 3], [10, 2], [9, 1], ['a10', 5], ['a9', 4];
my $sgd   = Polyverso::DistLearn::AllReduceSGD->new($group);
$sgd->sum_gradients(\%named);
show(keys => @named{ 9, 10, 'b', 'a9', 'a10' });
$sgd->close;
$group->close;
$node->shutdown;
