# How programs end: properly, or as lost, with what they died of.

use strict;
use warnings;

use Test::More;
use FindBin;
use lib "$FindBin::Bin/lib";
use TestCluster;
use Polyverso;

my $BEGIN = 'my $node = Polyverso->init(log_level => "error"); my $t = $node->array(size => 1, name => "t"); $node->barrier;';

# Runs a script as worker 1. Worker 0 waits for it, and prints the error of the barrier, or "all is well". Returns the
# status of worker 1, what it printed, and what worker 0 printed.
sub ended {
    my ($script, $begin) = @_;
    my $cluster = TestCluster->new(2);
    my $BARRIER = 'print eval { $node->barrier; 1 } ? "all is well" : $@->name . ": " . $@->text; eval { $node->shutdown }';
    my ($waiting, $seen) = $cluster->start("$BEGIN $BARRIER");
    my ($pid, $output)   = $cluster->start(($begin // $BEGIN) . $script);
    my $status = $cluster->finish($pid, 30);
    is($cluster->finish($waiting, 30), 0, 'the other one ends');
    return ($status, TestCluster::text($output), TestCluster::text($seen));
}

sub lost {
    my ($name, $script, $reason, $wanted) = @_;
    subtest $name => sub {
        my ($status, $output, $seen) = ended($script);
        ok($wanted ? $status == $wanted << 8 : $status >> 8 > 0, 'the exit status') or diag "$status: $output";
        like($seen, qr/MV_EPEERLOST: worker 1: $reason/, 'the other one sees why');
        like($output, $wanted ? qr/\A\z/ : qr/$reason/, 'what is printed');
    };
    return;
}

sub well {
    my ($name, $script, $printed) = @_;
    subtest $name => sub {
        my ($status, $output, $seen) = ended($script);
        is($status, 0,             'the exit status') or diag $output;
        is($seen,   'all is well', 'the other one sees nothing');
        is($output, $printed // '', 'what is printed');
    };
    return;
}

lost('die', 'die "no data for step 7\n"', qr/no data for step 7/);
lost('an error of Perl', 'my $x; $x->method', qr/Can't call method "method" on an undefined value at -e line 1/);
lost('an error of the library', '$t->add([1, 2])', qr/MV_ESHAPE: table "t": 2 values given/);
lost('a node destroyed while dying', 'sub train { my $own = shift; undef $node; die "deep\n" } train($node)', qr/deep/);
lost('a required file', '$SIG{ALRM} = 0; require "./no/such/file.pl"', qr/Can't locate/);
lost('exit', 'exit 3', qr/its process ended with exit status 3 without calling shutdown/, 3);
lost('a die that eval has caught before', 'eval { die "caught\n" }; exit 4', qr/its process ended with exit status 4/, 4);
lost('text that eval could not compile', 'eval "1 +* 2; }"; exit 5', qr/its process ended with exit status 5/, 5);
lost('abort', '$node->abort("a bad batch\n"); exit 6', qr/a bad batch/, 6);

subtest 'a group destroyed while dying' => sub {
    my ($status, $output, $seen) = ended('use Polyverso::Group; my $handle;
         sub train { my $group = Polyverso::Group->open($node, 1); $handle = $group->handle; die "deep\n" }
         END { print eval { Polyverso::mv_group_describe($handle); 1 } ? "still open\n" : "closed\n" } train()');
    like($output, qr/^still open$/m, 'it does not leave properly');
    like($seen, qr/MV_EPEERLOST: worker 1: deep/, 'the other one sees why');
};

# Worker 1 dies in a function with a node, a group and what is built on it, while worker 0 waits in an operation.
for my $case (
    ['an all-reduce',      '$group->allreduce(my $x = pack("f", 1), dtype => "f32")'],
    ['a custom reduction', '$group->allreduce_custom(Polyverso::Tensor->ones([1]), sub { })'],
    ['a drain',            '$group->drain'],
    ['a barrier',          '$group->barrier'],
    ['a strategy',         '$sgd->sum_gradients([Polyverso::Tensor->ones([2])])'],
) {
    my ($name, $waits) = @$case;
    my $uses = 'use Polyverso::Group; use Polyverso::DistLearn; my $opened = sub { my $node = Polyverso->init(log_level => "error");
        my $group = Polyverso::Group->open($node); my $sgd = Polyverso::DistLearn::AllReduceSGD->new($group); return ($node, $group, $sgd) };';
    my $cluster = TestCluster->new(2);
    my ($waiting, $seen) = $cluster->start("$uses my (\$node, \$group, \$sgd) = \$opened->(); \$group->barrier;
        print eval { $waits; 1 } ? 'nothing' : \$\@->name . ': ' . \$\@->text; eval { \$node->abort('over') }");
    my ($dying, $output) = $cluster->start("$uses sub train { my (\$node, \$group, \$sgd) = \$opened->(); \$group->barrier;
        select undef, undef, undef, 0.01 until grep { \$_->{kind} eq 'collective' } \@{ \$node->status->{waits} };
        die qq(no data for step 7\\n) } train()");
    ok($cluster->finish($dying, 30), "worker 1 dies while worker 0 waits in $name");
    is($cluster->finish($waiting, 30), 0, 'worker 0 ends');
    like(TestCluster::text($seen), qr/\AMV_EPEERLOST: .*worker 1: no data for step 7/, 'and has heard why') or diag TestCluster::text($output);
}

# A caught error: what worker 0 hears from within a barrier of a group, and how worker 1 ends.
for my $case (
    ['thrown again, with the group outside of the eval', '', 'my $g = Polyverso::Group->open($node); ', 'die $@', qr/worker 1: no data/, 1],
    ['handled, with the group inside', 'my $g = Polyverso::Group->open($node); ', '', '1',      qr/worker 1 .* has left the group/, 0],
    ['handled, and the group aborted', '', 'my $g = Polyverso::Group->open($node); ', '$g->abort($@)', qr/worker 1 .* has left the group: no data/, 0],
) {
    my ($name, $inside, $outside, $then, $heard, $fails) = @$case;
    my $use     = 'use Polyverso::Group; my $node = Polyverso->init(log_level => "error"); ';
    my $cluster = TestCluster->new(2);
    my ($waiting, $seen) = $cluster->start("$use my \$g = Polyverso::Group->open(\$node);
        print eval { \$g->barrier; 1 } ? 'nothing' : \$\@->name . ': ' . \$\@->text; eval { \$node->abort('over') }");
    my ($dying, $output) = $cluster->start("$use sub train { $outside eval { $inside
        select undef, undef, undef, 0.01 until grep { \$_->{kind} eq 'collective' } \@{ \$node->status->{waits} };
        die qq(no data\\n) } or $then } train(); \$node->abort");
    is($cluster->finish($dying, 30) ? 1 : 0, $fails, $name) or diag TestCluster::text($output);
    is($cluster->finish($waiting, 30), 0, 'the other one does not wait for ever');
    like(TestCluster::text($seen), $heard, 'and has heard why');
}

subtest 'with' => sub {
    my $with = 'Polyverso->with({ log_level => "error" }, sub { my ($node) = @_; my $t = $node->array(size => 1, name => "t"); $node->barrier; ';
    my ($status, $output, $seen) = ended('print $@', "eval { $with die qq(no rates\n) }); 1 };");
    is($status, 0, 'the error can be caught') or diag $output;
    is($output, "no rates\n", 'and is the same');
    like($seen, qr/worker 1: no rates \(rank 1/, 'but the other one has heard it');
    ($status, $output, $seen) = ended('', "print $with \$node->barrier; return 'fine' });");
    is_deeply([$status, $output, $seen], [0, 'fine', 'all is well'], 'without an error, a result');
    my @list = Polyverso->with(sub { (1, 2) });
    is_deeply(\@list, [1, 2], 'without settings, in list context');
    like(eval { Polyverso->with(3) } // $@, qr/with: the last argument must be a code reference, not "3"/, 'without code');
};

# Worker 1 dies inside of `with`, with a group open, while worker 0 waits in the group.
{
    my $with = 'use Polyverso::Group; Polyverso->with(log_level => "error", sub { my ($node) = @_; my $group = Polyverso::Group->open($node); $group->barrier; ';
    my $cluster = TestCluster->new(2);
    my ($waiting, $seen) = $cluster->start("$with print eval { \$group->barrier; 1 } ? 'nothing' : \$\@->text; \$node->abort });");
    my ($dying) = $cluster->start("eval { $with eval { die qq(caught\n) };
        select undef, undef, undef, 0.01 until grep { \$_->{kind} eq 'collective' } \@{ \$node->status->{waits} }; die qq(a wrong rate\n) }) }; exit 0");
    is($cluster->finish($dying, 30), 0, 'a program that goes on after with');
    $cluster->finish($waiting, 30);
    like(TestCluster::text($seen), qr/worker 1: a wrong rate/, 'a rank that waits in a group hears why');
}

subtest 'handlers of one\'s own' => sub {
    my $own = '$SIG{__DIE__} = sub { print "own handler: $_[0]" };';
    my ($init, $rest) = $BEGIN =~ /\A(.*?;) (.*)/;
    my $named = 'sub own { print "own handler: $_[0]" } $SIG{__DIE__} = "own";';
    for my $case (['set before', "$own $BEGIN"], ['set after', "$init $own $rest"], ['by name', "$named $BEGIN"]) {
        my ($status, $output, $seen) = ended('eval { die "caught\n" }; die "uncaught\n"', $case->[1]);
        cmp_ok($status >> 8, '>', 0, $case->[0]);
        is(join('', sort split /^/, $output), "own handler: caught\nown handler: uncaught\nuncaught\n", 'is called as before');
        like($seen, qr/worker 1: uncaught/, 'and the text is told');
    }
    my ($loud, $trace) = ended('sub deep { die "traced\n" } deep()', "use Carp; \$SIG{__DIE__} = \\&Carp::confess; $BEGIN");
    like($trace, qr/\Atraced\n at -e line 1\.\n\tmain::deep\(\) called/, 'a trace begins where the program died');
    my ($status, $output, $seen) = ended('my $replaced = 1; $SIG{__DIE__} = sub { print "mine\n" }; die "unseen\n"');
    is(join('', sort split /^/, $output), "mine\nunseen\n", 'a handler that replaces the library\'s is called');
    like($seen, qr/worker 1: its process ended with exit status \d+/, 'and the other one sees that the program failed');
};

well('an end without shutdown', '$node->barrier');
well('exit 0', '$node->barrier; exit');
well('two inits', 'Polyverso->init; $node->barrier;');
well('caught errors', 'eval { die "caught\n" }; eval { $t->add([1, 2]) }; $node->barrier; print "fine"', 'fine');
well('after a shutdown', '$node->barrier; $node->shutdown; $node = undef; print "fine"; exit 0', 'fine');
well('an END block of one\'s own', 'END { $node->barrier; print $t->get(as => "array")->[0] }', '0');
well('a child', 'for my $end ("exit 0", "exit 3", "die qq(child\n)") {
    my $pid = fork // die; if (!$pid) { close STDERR; eval $end if $end =~ /exit/; die "child\n" }
    waitpid $pid, 0; print $? >> 8 ? "failed " : "fine " }
    $node->barrier;', 'fine failed failed ');

subtest 'an exit status is kept' => sub {
    for my $status (0, 1, 7) {
        system $^X, '-MPolyverso', '-e', "Polyverso->init(log_level => 'error'); exit $status";
        is($? >> 8, $status, "exit $status");
    }
    system $^X, '-MPolyverso', '-e', 'exit 9';
    is($? >> 8, 9, 'without a node');
};

done_testing;
