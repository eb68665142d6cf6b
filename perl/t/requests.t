# Requests that are dropped without a wait: their handles and buffers are released.

use strict;
use warnings;

use Test::More;

use PDL::Lite;
use File::Temp;
use Polyverso;
use Polyverso::KVStore;
use Polyverso::Tensor;

# The slot of a request's handle. There are as many slots as requests that were alive at the same time.
sub slot { $_[0]->handle & 0xFFFFFF }

my $node  = Polyverso->init;
my $table = $node->array(size => 16);
my $ones  = PDL->ones(16);

my $most = 0;
for (1 .. 200_000) {
    my $slot = slot($table->add($ones, async => 1));
    $most = $slot if $slot > $most;
}
cmp_ok($most, '<', 100, 'dropped adds give their slots back');
$node->barrier;
is($table->get(as => 'array')->[0], 200_000, 'and go on');
is_deeply($node->poll, [], 'and nobody is told of them');

$most = 0;
for (1 .. 20_000) {
    my $slot = slot($table->get(async => 1));
    $most = $slot if $slot > $most;
}
cmp_ok($most, '<', 1000, 'so do gets');
$node->barrier;
$table->get(async => 1)->wait;
{ no warnings 'once'; cmp_ok(scalar(keys %Polyverso::CAPI::held), '<', 1000, 'whose buffers are let go'); }

my $kv = Polyverso::KVStore->create('dist_async');
$kv->init(1, Polyverso::Tensor->zeros(8));
my $tensor = Polyverso::Tensor->zeros(8);
my $folder = File::Temp->newdir;
for (1 .. 300) {
    $table->set($ones, async => 1);
    $node->barrier(async => 1);
    $kv->pull(1, $tensor, async => 1);
}
$node->save("$folder", async => 1, keep => 1);
$node->barrier;
my $last = $node->barrier(async => 1);
cmp_ok(slot($last), '<', 1000, 'and calls of every kind');
$last->wait;

{
    my $request = $table->add($ones, async => 1);
    my $pid = fork // die "fork: $!";
    if (!$pid) {
        undef $request;
        require POSIX;
        POSIX::_exit(0);
    }
    waitpid $pid, 0;
    is($?, 0, 'a forked child drops its own');
    $request->wait;
}
# A signal handler that dies ends the call: its reason is neither swallowed nor taken for the request's outcome.
{
    package Raising;
    sub TIESCALAR { my ($class) = @_; return bless { reads => 0 }, $class }
    sub FETCH { my ($self) = @_; kill ALRM => $$ if ++$self->{reads} == 2; return 1 }    # the first read looks for lists
}

{
    no warnings qw(redefine once);
    local $SIG{ALRM} = sub { die "too slow\n" };
    my $table = $node->array(size => 2);
    my @list  = (1, 1);
    tie $list[1], 'Raising';
    is(eval { $table->add(\@list); 1 } ? 'no error' : $@, "too slow\n", 'a handler dies while a list is packed');
    my ($test, $wait) = (\&Polyverso::CAPI::mv_request_test, \&Polyverso::CAPI::mv_request_wait);
    my $request = $table->get(as => 'array', async => 1);
    {
        local *Polyverso::CAPI::mv_request_test = sub { kill ALRM => $$; return $test->(@_) };
        is(eval { $request->done; 1 } ? 'no error' : $@, "too slow\n", 'before done() has asked');
    }
    is_deeply($request->wait, [0, 0], 'the request goes on');
    $request = $table->get(as => 'array', async => 1);
    {
        local *Polyverso::CAPI::mv_request_wait = sub { $wait->(@_); kill ALRM => $$; return };
        is(eval { $request->wait; 1 } ? 'no error' : $@, "too slow\n", 'at the end of a wait');
    }
    is_deeply($request->wait, [0, 0], 'the result is still there');
}

my $late = $table->add($ones, async => 1);
undef $kv;
$node->shutdown;
undef $late;
pass('a request may outlive its node');

done_testing;
