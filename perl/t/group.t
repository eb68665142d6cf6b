# Polyverso::Group: a group of one rank in this process, and ranks in several processes.

use strict;
use warnings;

use Test::More;
use FindBin;
use lib "$FindBin::Bin/lib";
use TestCluster;

use PDL::Lite;
use Polyverso;
use Polyverso::Group;

sub text_of_error { my ($code) = @_; return eval { $code->(); 1 } ? '' : ref $@ ? $@->text : $@ }

my $BEGIN = <<'BEGIN';
use PDL::Lite; use Polyverso::Group;
my $node  = Polyverso->init;
my $group = Polyverso::Group->open($node);
my $rank  = $group->rank;
sub add { my ($mine, $theirs) = @_; $mine += $theirs; return }
BEGIN

# Runs the script as three ranks; returns their output, in the order of ranks.
sub printed {
    my ($name, $script) = @_;
    my $cluster = TestCluster->new(3);
    my @ranks   = map { [$cluster->start("$BEGIN$script; \$group->close; \$node->shutdown;")] } 0 .. 2;
    my @ends    = map { $cluster->finish($_->[0], 60) } @ranks;
    my @texts   = map { TestCluster::text($_->[1]) } @ranks;
    is("@{[map { $_ // 'late' } @ends]}", '0 0 0', $name) or diag @texts;
    return @texts;
}

my @texts = printed('all get what each has, and each a part', <<'RANK');
print $group->allgather(PDL::long([$rank, 10 * $rank])), $group->allgather(Polyverso::Tensor->full([1, 2], $rank))->shape->[0], "\n";
my $whole = PDL->sequence(2, 6);
my $part  = $group->reduce_scatter($whole, op => 'avg');
my $tensor = Polyverso::Tensor->range(6);
print join(' ', $part->list, 'tensor', @{ $group->reduce_scatter($tensor)->to_list }), "\n";
$part .= 77;
my $packed = pack 'f*', $rank, 1;
$group->allreduce($packed, op => 'max', dtype => 'f32');
print join(',', unpack 'f*', $packed), "\n";
print $whole->at(0, 2 * $rank), "\n";
eval { $group->reduce_scatter(PDL->zeroes(3, 4)) };
print ref $@ && $@->text =~ /\$group->reduce_scatter: 4 rows can't be divided evenly among 3 ranks/ ? "refused\n" : $@;
RANK
for my $rank (0 .. 2) {
    like($texts[$rank], qr/\[\s*\[ *0 +0\]\s*\[ *1 +10\]\s*\[ *2 +20\]\s*\]\s*3\n/, 'gathered');
    my $own = join ' ', map { 4 * $rank + $_ } 0 .. 3;
    my $sum = join ' ', map { 3 * (2 * $rank + $_) } 0, 1;
    like($texts[$rank], qr/^$own tensor $sum\n2,1\n77\nrefused\n/m, 'its part');
}

@texts = printed('arrays are gathered, scattered, exchanged, sent', <<'RANK');
my $gathered = $group->gather(PDL::long([$rank, 7]), root => 1);
print defined $gathered ? join(',', $gathered->list) : 'nothing', ' ';
my ($own, $tensor) = (PDL->zeroes(2), Polyverso::Tensor->zeros([2]));
$group->scatter($own, $rank == 2 ? PDL->sequence(2, 3) : undef, root => 2);
$group->scatter($tensor, $rank == 0 ? Polyverso::Tensor->range(6)->reshape([3, 2]) : undef);
print join(',', $own->list, @{ $tensor->to_list }), ' ', join(',', $group->alltoall(PDL->sequence(3) + 10 * $rank)->list), ' ';
my @sends = (1, $rank, 0);
my $count = 1 + $rank;
print join(',', $group->alltoall(PDL->sequence($count) + 10 * $rank, send_rows => \@sends,
    receive_rows => $rank == 0 ? [1, 1, 1] : $rank == 1 ? [0, 1, 2] : [0, 0, 0])->list), "\n";
my $long = PDL->zeroes(200_000) + $rank;
my $sent = $group->send($long, ($rank + 1) % 3, tag => 4, async => 1);
my $from_any = $group->recv(PDL->zeroes(2), undef, tag => 5, async => 1);
$group->send(PDL->ones(2), ($rank + 1) % 3, tag => 5);
die 'the sender of a request' if grep { $from_any->wait != ($rank + 2) % 3 } 1, 2;
my $back = PDL->zeroes(200_000);
print join(',', $group->recv($back, ($rank + 2) % 3, tag => 4), $back->min, $back->max, scalar(my @none = $sent->wait)), ' ';
$group->send(PDL->pdl(1, 2), ($rank + 1) % 3);
eval { $group->recv(PDL->zeroes(3), undef) };
print $@->name, ' ', $group->allreduce(PDL->ones(1))->at(0), "\n";
RANK
for my $rank (0 .. 2) {
    my ($previous, @own) = (($rank + 2) % 3, map { 2 * $rank + $_ } 0, 1);
    my @rows = @{ [[0, 10, 20], [11, 21, 22], []]->[$rank] };
    is($texts[$rank], join(' ', $rank == 1 ? '0,7,1,7,2,7' : 'nothing', join(',', @own, @own), join(',', map { $rank + 10 * $_ } 0 .. 2),
        join(',', @rows)) . "\n$previous,$previous,$previous,0 MV_ESHAPE 3\n", "of rank $rank");
}

@texts = printed('asynchronous operations keep their order', <<'RANK');
my @sums  = map { PDL->zeroes(5000) + $_ } 0 .. 9;
my @begun = map { $group->allreduce($_, async => 1) } @sums;
my ($one, $packed) = (PDL->zeroes(2) + $rank, pack 'f*', $rank, 1);
push @begun, $group->broadcast($one, root => 1, async => 1), $group->allreduce($packed, op => 'max', dtype => 'f32', async => 1),
    $group->allreduce_many([my $many = PDL->ones(2)], async => 1), $group->allgather(PDL->pdl($rank), async => 1),
    $group->reduce_scatter(PDL->ones(3), async => 1), $group->gather(PDL->pdl($rank), async => 1),
    $group->alltoall(PDL->sequence(3), async => 1), $group->broadcast_many([PDL->pdl($rank)], async => 1),
    $group->reduce(PDL->ones(2), async => 1), $group->barrier(async => 1);
$group->barrier;
my $done = grep { $_->done } @begun;
my @results = map { [$_->wait] } @begun;
my @gathered = $rank ? scalar @{ $results[15] } : $results[15][0]->list;
print "$done ", join(',', map { $_->at(4999) } @sums), ' ', $results[9][0]->at(0), ' ',
    join(',', $one->list, unpack('f*', $packed), $many->list, map({ $results[$_][0]->list } 13, 14), @gathered, $results[16][0]->list,
        $results[17][0][0]->list), "\n";
my $wrong = $group->allreduce(PDL->ones(2 + ($rank == 1)), async => 1);
print eval { $wrong->wait; 1 } ? 'summed' : $@->name, ' ', $group->allreduce(PDL->ones(1), async => 1)->wait->at(0), "\n";
RANK
my $sums = join ',', map { 3 * $_ } 0 .. 9;
for my $rank (0 .. 2) {
    my $gathered = $rank ? '0' : '0,1,2';
    is($texts[$rank], "20 $sums 27 1,1,2,1,3,3,0,1,2,3,$gathered,$rank,$rank,$rank,0\nMV_EDISAGREE 3\n", "of rank $rank");
}

@texts = printed('a function of one\'s own reduces', <<'RANK');
my ($values, $whole) = (PDL->zeroes(2, 2)->float + $rank + 1, PDL->zeroes(3, 2) + $rank);
print $group->allreduce_custom($values, \&add), ' ', join(',', $values->list), "\n";
my $slice = $whole->slice(':,(1)');
$group->allreduce_custom($slice, sub { $_[0] + $_[1] });
print join(',', $slice->list, $whole->slice(':,(1)')->list), "\n";
my @best = (PDL->pdl([5 - $rank]), Polyverso::Tensor->full([1], $rank));
print $group->allreduce_custom(\@best, sub { my ($mine, $theirs) = @_; $mine->[1] = $mine->[1]->maximum($theirs->[1]) }), ' ',
    $best[0]->at(0), ' ', $best[1]->item, "\n";
RANK
is($_, "3 6,6,6,6\n3,3,3,3,3,3\n3 5 2\n", 'in place, returned, or put into the list') for @texts;

@texts = printed('a function that fails', <<'RANK');
for my $values (PDL->zeroes(3), [PDL->zeroes(3), PDL->zeroes(1)]) {
    eval { $group->allreduce_custom($values, sub { die "of one's own\n" }) };
    print ref $@ ? $@->name . ($@->text =~ /failed: of one's own/ ? " with its text\n" : "\n") : $@;
}
print $group->allreduce(PDL->ones(1))->at(0), "\n";
RANK
is($texts[0], "of one's own\nof one's own\n3\n", 'dies where it died');
is($_, "MV_ECANCELED with its text\nMV_ECANCELED with its text\n3\n", 'and fails on the others; the group goes on') for @texts[1, 2];

@texts = printed('shapes are compared', <<'RANK');
use Polyverso::DistLearn;
my $sgd = Polyverso::DistLearn::AllReduceSGD->new($group);
my $odd = $rank == 1;
my @dims = $odd ? (2, 3) : (3, 2);
for my $call (
    sub { $group->allreduce(PDL->ones(@dims)) },
    sub { $group->allreduce_many([PDL->ones(4), Polyverso::Tensor->ones([@dims])]) },
    sub { $group->allreduce_custom(PDL->ones(@dims), \&add) },
    sub { $group->allgather(PDL->ones(@dims)) },
    sub { $group->reduce_scatter($odd ? PDL->ones(2, 6) : PDL->ones(4, 3)) },
    sub { $sgd->sum_gradients({ ($odd ? 'b' : 'a') => PDL->ones(2) }) },
    sub { $sgd->sum_gradients({ a => { ($odd ? 'b' : 'c') => PDL->ones(2) } }) },
) {
    print eval { $call->(); 1 } ? 'summed' : $@->name, "\n";
}
my @sums = map { $group->allreduce($_) } $odd ? PDL->ones(6) : PDL->ones(3, 2), PDL->ones(3, 2)->float;
my $tensor = Polyverso::Tensor->ones([2, 3]);
$group->allreduce($odd ? PDL->ones(3, 2)->float : $tensor);
print join(' ', map({ $_->sum } @sums), $sgd->sum_gradients({ a => PDL->ones(2, 2) })), "\n";
$sgd->close;
RANK
is($_, "MV_EDISAGREE\n" x 7 . "18 18 3\n", 'other dimensions and names are refused, one dimension fits all') for @texts;

@texts = printed('ranks that are through drain', <<'RANK');
my @seen;
for my $step (0 .. 2 * $rank - 1) {
    push @seen, $step % 2
        ? $group->allreduce_custom(PDL->ones($step), \&add)
        : $group->allreduce_many([PDL->ones($step + 1)->longlong, PDL->ones(2)], op => 'max');
}
while (my $coming = $group->drain) {
    push @seen, join ',', $coming->{op} // 'custom', map { "$_->{count}$_->{dtype}" } @{ $coming->{arrays} };
    my @nothing = map { Polyverso::Tensor->zeros($_->{count}, $_->{dtype}) } @{ $coming->{arrays} };
    if ($coming->{op}) { $group->allreduce_many(\@nothing, op => $coming->{op}, draining => 1) }
    else               { $group->allreduce_custom(\@nothing, sub { }, draining => 1) }
}
print "@seen\n";
RANK
is($texts[0], "max,1i64,2f64 custom,1f64 max,3i64,2f64 custom,3f64\n", 'in all of the others\' operations');
is($texts[1], "2 2 max,3i64,2f64 custom,3f64\n",                       'or in those that are left');
is($texts[2], "2 2 1 1\n",                                              'whose contributors are counted');

my $node  = Polyverso->init;
my $group = Polyverso::Group->open($node);
is($group->drain, undef, 'alone nobody drains with anybody');
is($group->allreduce_custom(PDL->zeroes(2), sub { die }), 1, 'and nothing is reduced');

# Two ranks: what a reducer returns.
{
    my $cluster = TestCluster->new(2);
    my @ranks = map { [$cluster->start('use PDL; use Polyverso::Group; my $node = Polyverso->init; my $group = Polyverso::Group->open($node);
        for my $reduce (sub { 99 }, sub { "abc" }, sub { [1, 2] }, sub { my ($mine, $theirs) = @_; $mine += $theirs; 1 }) {
            my $x = pdl(1, 2);
            print eval { $group->allreduce_custom($x, $reduce); 1 } ? "$x\n" : $@->text =~ /changed nothing: it must return a PDL/ ? "refused\n" : "$@";
        } $node->shutdown;')] } 1, 2;
    for my $rank (@ranks) {
        is($cluster->finish($rank->[0], 30), 0, 'the rank ends');
        is(TestCluster::text($rank->[1]), "refused\n" x 3 . "[2 4]\n", 'what is no array and changes nothing is refused');
    }
}
like(text_of_error(sub { $group->allreduce_custom([3], sub { }) }), qr/a PDL or a tensor is needed, not 3/, 'numbers are refused');
like(text_of_error(sub { $group->allgather('text') }),              qr/a PDL or a tensor is needed/,        'and texts');
like(text_of_error(sub { $group->reduce_scatter(PDL->zeroes(2), op => 'mean') }), qr/\$group->reduce_scatter: unknown op "mean"; known: avg/, 'op is checked');
like(text_of_error(sub { $group->allreduce(PDL->zeroes(2), opp => 'max') }), qr/unknown option "opp"; .*did you mean "op"/, 'and so are the names of options');
like(text_of_error(sub { $group->barrier(op => 'max') }), qr/unknown option "op"/, 'by what a call takes');
for my $call (qw(allreduce reduce broadcast)) {
    my $packed = pack 'd*', 1 .. 3;
    $group->$call($packed, dtype => 'f64');
    is_deeply([unpack 'd*', $packed], [1 .. 3], "$call of a packed string");
    like(text_of_error(sub { $group->$call($_) }), qr/a PDL or a tensor is needed, not /, 'nothing else') for undef, [1], {}, \1;
}
like(text_of_error(sub { $group->allreduce(my $bytes = 'abcd') }), qr/\$group->allreduce: bytes/, 'a string without a dtype is bytes');
my $custom = Polyverso::CAPI::mv_custom_begin($group->handle, [PDL->zeroes(2)], 0);
like(text_of_error(sub { Polyverso::CAPI::mv_custom_next($custom, []) }), qr/0 arrays given, 1 needed/, 'there is a place for each array');
is(Polyverso::CAPI::mv_custom_next($custom, [PDL->zeroes(2)]), 0, 'manually');
is(Polyverso::CAPI::mv_custom_end($custom), 1, 'one contributed');
$group->close;
$node->shutdown;

done_testing;
