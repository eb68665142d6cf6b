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
