# Servers in Perl: commands and their controller, and programs that a DMLC tracker starts as servers.

use strict;
use warnings;

use Test::More;

use File::Temp ();
use FindBin;
use IO::Socket::INET;
use lib "$FindBin::Bin/lib";
use TestCluster;

sub ends_with {
    my ($cluster, $started, $expected, $name) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;
    my ($pid, $output) = @$started;
    my $status = $cluster->finish($pid, 60);
    return is(TestCluster::text($output), $expected, $name) && is($status, 0, 'and ends well');
}

subtest 'a controller' => sub {
    my $server = '
        BEGIN { $ENV{POLYVERSO_ROLE} = "server" }
        use AI::MXNet qw(mx);
        my $kv = mx->kv->create("dist_sync");
        printf "%s server %d, %d workers\n", $kv->type, $kv->rank, $kv->num_workers;
        eval { $kv->push("w", mx->nd->ones([1])) };
        print $@->name, "\n";
        AI::MXNet::KVStoreServer->new(
            kvstore    => $kv,
            controller => sub { my ($head, $body) = @_; die "not that\n" if $head == 13; print "command $head: $body\n" },
        )->run;
        print "served\n";
    ';
    my $worker = '
        BEGIN { $ENV{POLYVERSO_ROLE} = "worker" }
        use AI::MXNet qw(mx);
        my $kv = mx->kv->create("dist_sync");
        my $a = mx->nd->zeros([2]);
        $kv->init("w", mx->nd->ones([2]));
        $kv->_send_command_to_servers(7, "seven $_") for 1, 2;
        $kv->set_optimizer(mx->optimizer->create("sgd", learning_rate => 0.5));
        $kv->push("w", mx->nd->ones([2]));
        eval { $kv->_send_command_to_servers(13, "thirteen") };
        print $@ ? $@->name : "nothing", "\n";
        $kv->pull("w", out => $a);
        print $a->at(0)->asscalar, "\n";
    ';
    my $cluster = TestCluster->new(2);
    my @started = map { [$cluster->start($_)] } $server, $worker;
    ends_with($cluster, $started[1], "MV_EINVAL\n0.5\n", 'the worker');
    ends_with($cluster, $started[0], "dist_sync server 0, 1 workers\nMV_ESTATE\ncommand 7: seven 1\ncommand 7: seven 2\ncommand 13: not that\n"
            . "served\n", 'the server');
};

subtest 'under a DMLC tracker' => sub {
    my $script = '
        BEGIN { $AI::MXNet::KVStoreServer::controller = sub { print "told @_\n" } }
        use AI::MXNet qw(mx);
        my $kv = mx->kv->create("dist_sync");
        $kv->init(3, mx->nd->ones([2]) * 4);
        $kv->_send_command_to_servers(1, "one");
        $kv->pull(3, out => my $a = mx->nd->zeros([2]));
        print "worker ", $a->at(1)->asscalar, "\n";
    ';
    my $port = IO::Socket::INET->new(Listen => 1, LocalAddr => '127.0.0.1')->sockport;
    local %ENV = (%ENV, DMLC_PS_ROOT_URI => '127.0.0.1', DMLC_PS_ROOT_PORT => $port, DMLC_NUM_WORKER => 1, DMLC_NUM_SERVER => 1,
        DMLC_NODE_HOST => '127.0.0.1');
    my $processes = TestCluster->new(0);
    my %started = map { $_ => [$processes->start_as({ DMLC_ROLE => $_ }, $script)] } qw(scheduler server worker);
    ends_with($processes, $started{worker}, "worker 4\n", 'the worker runs the script');
    ends_with($processes, $started{server}, "told 1 one\n", 'the server serves');
    ends_with($processes, $started{scheduler}, '', 'the scheduler says nothing');
};

done_testing;
