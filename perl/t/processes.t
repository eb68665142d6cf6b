# Signals and forks.

use strict;
use warnings;

use Test::More;
use Time::HiRes qw(sleep time);
use FindBin;
use lib "$FindBin::Bin/lib";
use TestCluster;

use Polyverso;

my $JOIN = 'print "waiting\n"; Polyverso->init;';
my $WAIT = 'my $node = Polyverso->init; print "waiting\n"; $node->barrier; print "over\n";';
my $STAY = 'my $node = Polyverso->init; sleep 60;';

for my $case ([init => $JOIN], [barrier => $WAIT, $STAY]) {
    my ($name, @scripts) = @$case;
    my $cluster = TestCluster->new(2);
    my ($pid, $output) = $cluster->start($scripts[0]);
    $cluster->start($_) for @scripts[1 .. $#scripts];
    ok(TestCluster::await($output, 'waiting'), "$name waits");
    sleep 0.3;
    kill INT => $pid;
    is($cluster->finish($pid, 5), 2, 'and Ctrl-C ends it');
}

subtest 'a handler that dies ends the wait' => sub {
    my $cluster = TestCluster->new(2);
    my ($pid, $output) = $cluster->start(
        'my $node = Polyverso->init(sync => 1); my $t = $node->array(size => 2, name => "w");
         local $SIG{INT} = sub { die "stop\n" }; print "waiting\n"; $t->add([1, 1]);
         eval { $t->get(as => "array") }; print "got $@"; exit 3;'
    );
    $cluster->start('my $node = Polyverso->init(sync => 1); my $t = $node->array(size => 2, name => "w"); sleep 60;');
    ok(TestCluster::await($output, 'waiting'), 'waits');
    sleep 0.3;
    kill INT => $pid;
    is($cluster->finish($pid, 5), 3 << 8, 'ends');
    like(TestCluster::text($output), qr/got stop/, 'with what the handler died of');
};

subtest 'a handler that returns lets the wait go on' => sub {
    my $cluster = TestCluster->new(2);
    my ($pid, $output) = $cluster->start(
        'use Time::HiRes; my $node = Polyverso->init; my $signals = 0; $SIG{ALRM} = sub { $signals++ };
         Time::HiRes::setitimer(Time::HiRes::ITIMER_REAL(), 0.05, 0.05); $node->barrier;
         $node->poll(capacity => 1, timeout => 0.2); Time::HiRes::setitimer(Time::HiRes::ITIMER_REAL(), 0);
         $node->shutdown; print $signals > 3 ? "went on\n" : "$signals signals\n";'
    );
    my ($other) = $cluster->start(
        'my $node = Polyverso->init; select undef, undef, undef, 0.5; $node->barrier; $node->shutdown;'
    );
    is($cluster->finish($pid, 10), 0, 'ends well') or diag TestCluster::text($output);
    is($cluster->finish($other, 10), 0, 'so does the other');
    is(TestCluster::text($output), "went on\n", 'after many signals');
};

subtest 'a forked child' => sub {
    my $node = Polyverso->init;
    my $t = $node->array(size => 2, init => [1, 2]);
    for my $child (
        sub { !eval { $node->rank; 1 } && $@->name eq 'MV_EFORK' },
        sub { !eval { $t->get(as => 'array'); 1 } && $@->name eq 'MV_EFORK' },
        sub { Polyverso->init->array(size => 1, init => [7])->get(as => 'array')->[0] == 7 },
    ) {
        my $pid = fork // die "fork: $!";
        if (!$pid) {
            require POSIX;
            POSIX::_exit($child->() ? 0 : 1);
        }
        waitpid $pid, 0;
        is($?, 0, 'is told so, or begins anew');
    }
    is_deeply($t->get(as => 'array'), [1, 2], 'and leaves the parent alone');
    $node->shutdown;
};

subtest 'a forked child exits without a word' => sub {
    for my $case (['exit', 0, ''], ['exit 3', 3, ''], ['$! = 9; die "of itself\n"', 9, "of itself\n"]) {
        my ($end, $wanted, $said) = @$case;
        my $cluster = TestCluster->new(1);
        my ($pid, $output) = $cluster->start(<<"SCRIPT");
use Polyverso::Group; use Polyverso::KVStore;
sub main {
    my \$node = Polyverso->init(log_level => 'error');
    my (\$group, \$kv, \$t) = (Polyverso::Group->open(\$node), Polyverso::KVStore->create('dist_sync'), \$node->array(size => 1, init => [7]));
    my \$pid = fork // die "fork: \$!";
    if (!\$pid) { $end }
    waitpid \$pid, 0;
    print \$? >> 8, ' ', \$t->get(as => 'array')->[0], "\n";
    \$node->shutdown;
}
main();
SCRIPT
        is($cluster->finish($pid, 30), 0, "$end: the parent ends well");
        is(TestCluster::text($output), "$said$wanted 7\n", 'and sees the status of the child');
    }
};

done_testing;
