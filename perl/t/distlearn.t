# Polyverso::DistLearn: a cluster of one in this process, and ranks in several processes.

use strict;
use warnings;

use Test::More;
use FindBin;
use lib "$FindBin::Bin/lib";
use TestCluster;

use PDL::Lite;
use Polyverso;
use Polyverso::DistLearn;
use Polyverso::Group;

sub text_of_error { my ($code) = @_; return eval { $code->(); 1 } ? '' : ref $@ ? $@->text : $@ }

subtest 'ranks with uneven steps' => sub {
    my $cluster = TestCluster->new(3);
    my $script  = <<'RANK';
use PDL::Lite; use Polyverso::DistLearn; use Polyverso::Group;
my $node = Polyverso->init;
my $group = Polyverso::Group->open($node);
my $sgd = Polyverso::DistLearn::AllReduceSGD->new($group);
my $params = { b => PDL->zeroes(2) + $group->rank + 1, a => [PDL->zeroes(2, 2)->float] };
$sgd->synchronize_parameters($params);
my @seen;
for my $step (0 .. $group->rank) {    # 1, 2 and 3 steps
    my $grads = { b => PDL->zeroes(2) + $group->rank + 1, a => [PDL->ones(2, 2)->float] };
    push @seen, $sgd->sum_and_normalize_gradients($grads);
    $params->{b} -= $grads->{b};
}
$sgd->synchronize_parameters($params);
my $ea = Polyverso::DistLearn::AllReduceEA->new($group, 1, 0.25);
$ea->synchronize_parameters($params);
$params->{b} += 4 * $group->rank;
$ea->average_parameters($params);
$ea->synchronize_center($params);
print "@seen ", $params->{b}->at(0), "\n";
$ea->close; $sgd->close; $group->close; $node->shutdown;
RANK
    my @ranks = map { [$cluster->start($script)] } 0 .. 2;
    for my $rank (0 .. 2) {
        my $end  = -6.5 + 3 * $rank;
        my $seen = join ' ', (3, 2, 1)[0 .. $rank];
        is($cluster->finish($ranks[$rank][0], 60), 0, "rank $rank ends well") or diag TestCluster::text($ranks[$rank][1]);
        is(TestCluster::text($ranks[$rank][1]), "$seen " . ($end - 0.25 * ($end + 3.5)) . "\n", 'with what the closed form says');
    }
};

my $node  = Polyverso->init;
my $group = Polyverso::Group->open($node);

my $table = $node->array(size => 2, dtype => 'f64');
my $async = Polyverso::DistLearn::AsyncEA->new($table, 1, 0.5);
my $model = PDL->new(8, 8);
$async->average_parameters($model);
is("$model", '[4 4]', 'a centre in a table draws');
$async->read_center($model);
is("$model", '[4 4]', 'and is drawn');
$async->close;

my $whole = PDL->zeroes(4, 2);
my $local = Polyverso::DistLearn::LocalSGD->new($group, inner_steps => 2);
$local->synchronize_parameters($whole);
my $part = $whole->slice(':,(1)');
for (1 .. 2) { $whole += 1; $local->step($whole) }
is("$part", '[2 2 2 2]', 'steps between exchanges; slices hear of what was written');
is($local->meter->{steps}, 2, 'and are counted');
$local->close;

my $diloco = Polyverso::DistLearn::DiLoCo->new($group, inner_steps => 2);
my $moved  = PDL->zeroes(3);
$diloco->synchronize_parameters($moved);
for (1 .. 2) { $moved += 1; $diloco->step($moved) }
ok(abs($moved->at(0) - 0.7 * 1.9 * 2) < 1e-12, "DiLoCo's outer step is its own") or diag $moved;
$diloco->close;

for my $how ('int8', 'topk ratio=1', 'powersgd rank=1') {
    my $compressed = Polyverso::DistLearn::CompressedAllReduce->new($group, $how);
    my $gradient   = (PDL->sequence(6) + 1) * (PDL->sequence(8) + 1)->dummy(0);
    my $wanted     = $gradient->copy;
    is($compressed->average_gradients([$gradient]), 1, "$how: one contributes");
    ok(($gradient - $wanted)->abs->max < 0.5, 'about the gradient');
    $compressed->finish([$gradient]);
    $compressed->close;
}

like(text_of_error(sub { Polyverso::DistLearn::AllReduceEA->new($group, 0, 0.5) }), qr/tau is 0/, 'tau is checked');
my $sgd = Polyverso::DistLearn::AllReduceSGD->new($group);
like(text_of_error(sub { $sgd->sum_gradients([PDL->sequence(2)->long]) }), qr/array 0 is i32/, 'integers are refused');
like(text_of_error(sub { $sgd->sum_gradients([3]) }), qr/neither a PDL nor a tensor/, 'and numbers');
like(text_of_error(sub { Polyverso::CAPI::mv_ea_average($sgd->handle, []) }), qr/not an AllReduceEA/, 'a handle of another kind is told');
$sgd->close;
$group->close;
$node->shutdown;

{
    my $node  = Polyverso->init(log_level => 'error');
    my $group = Polyverso::Group->open($node);
    my @calls = (
        [qr/AllReduceSGD->new: a Polyverso::Group is needed, not a Polyverso::Node/, sub { Polyverso::DistLearn::AllReduceSGD->new($node) }],
        [qr/AsyncEA->new: a Polyverso::Table is needed, not a Polyverso::Group/, sub { Polyverso::DistLearn::AsyncEA->new($group, 1, 0.1) }],
        [qr/AllReduceSGD->new: a Polyverso::Group is needed, not undef/, sub { Polyverso::DistLearn::AllReduceSGD->new }],
        [qr/AllReduceEA->new: alpha is "fast", not a number/, sub { Polyverso::DistLearn::AllReduceEA->new($group, 1, 'fast') }],
        [qr/Group->open: a Polyverso::Node is needed, not "node"/, sub { Polyverso::Group->open('node') }],
    );
    for my $call (@calls) {
        my ($pattern, $code) = @$call;
        like(eval { $code->(); 1 } ? 'nothing' : $@->text, $pattern, 'an argument of a wrong kind');
    }
    $group->close;
    $node->shutdown;
}

done_testing;
