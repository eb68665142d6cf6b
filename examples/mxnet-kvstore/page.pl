#!/usr/bin/env perl
# The manual page of AI::MXNet::KVStore as one script: every statement of its examples, in the page's order.
#
#     perl examples/mxnet-kvstore/page.pl
#     polyverso run -n 2 -- perl examples/mxnet-kvstore/page.pl         # the last part then has two workers
#
# A comment with "#>" has what the page says that the statement prints; perl/AI-MXNet/t/ai_mxnet_page.t compares. Where
# a section of the page takes up another one's values, it has them set first. Errors of the page are corrected:
#   init                      $kv->init(keys, ...)              -> $keys
#   push                      0..@$keys-1)                      -> 0..@$keys-1]
#                             mx->nd->zeros(shape)              -> $shape
#                             map { ... } @$keys-1              -> 0..@$keys-1
#   _set_updater              my ($key, input, stored) = @_     -> $input, $stored
#   set_gradient_compression  {'type': '2bit', ...}             -> { type => '2bit', ... }

use strict;
use warnings;

use AI::MXNet qw(mx);
use File::Temp ();

# ---- init

# init a single key-value pair
my $shape = [2,3];
my $kv = mx->kv->create('local');
$kv->init(3, mx->nd->ones($shape)*2);
my $a = mx->nd->zeros($shape);
$kv->pull(3, out=>$a);
print $a->aspdl;    #> [[2 2 2] [2 2 2]]
# init a list of key-value pairs
my $keys = [5, 7, 9];
$kv->init($keys, [map { mx->nd->ones($shape) } 0..@$keys-1]);

# ---- push

# push a single key-value pair
$kv->push(3, mx->nd->ones($shape)*8);
$kv->pull(3, out=>$a); # pull out the value
print $a->aspdl();    #> [[8 8 8] [8 8 8]]
# aggregate the value and the push
# Where four GPUs are missing, contexts mx->cpu(0) .. mx->cpu(3) stand for as many devices, whose values a store sums in
# the same way.
my $gpus = [map { mx->num_gpus >= 4 ? mx->gpu($_) : mx->cpu($_) } 0..3];
my $b = [map { mx->nd->ones($shape, ctx => $_) } @$gpus];
$kv->push(3, $b);
$kv->pull(3, out=>$a);
print $a->aspdl;    #> [[4 4 4] [4 4 4]]
# push a list of keys.
# single device
$kv->push($keys, [map { mx->nd->ones($shape) } 0..@$keys-1]);
$b = [map { mx->nd->zeros($shape) } 0..@$keys-1];
$kv->pull($keys, out=>$b);
print $b->[1]->aspdl;    #> [[1 1 1] [1 1 1]]
# multiple devices:
$b = [map { [map { mx->nd->ones($shape, ctx => $_) } @$gpus] } 0..@$keys-1];
$kv->push($keys, $b);
$kv->pull($keys, out=>$b);
print $b->[1][1]->aspdl();    #> [[4 4 4] [4 4 4]]

# ---- pull, from keys that hold twos

$kv->push(3, mx->nd->ones($shape)*2);
$kv->push($keys, [map { mx->nd->ones($shape)*2 } 0..@$keys-1]);

# pull a single key-value pair
$a = mx->nd->zeros($shape);
$kv->pull(3, out=>$a);
print $a->aspdl;    #> [[2 2 2] [2 2 2]]
# pull into multiple devices
$b = [map { mx->nd->ones($shape, $_) } @$gpus];
$kv->pull(3, out=>$b);
print $b->[1]->aspdl();    #> [[2 2 2] [2 2 2]]
# pull a list of key-value pairs.
# On single device
$keys = [5, 7, 9];
$b = [map { mx->nd->zeros($shape) } 0..@$keys-1];
$kv->pull($keys, out=>$b);
print $b->[1]->aspdl();    #> [[2 2 2] [2 2 2]]
# On multiple devices
$b = [map { [map { mx->nd->ones($shape, ctx => $_) } @$gpus ] } 0..@$keys-1];
$kv->pull($keys, out=>$b);
print $b->[1][1]->aspdl();    #> [[2 2 2] [2 2 2]]

# ---- row_sparse_pull, in a store of its own: the key '3' is there already

$kv = mx->kv->create('local');
$shape = [3, 3];
$kv->init('3', mx->nd->ones($shape)->tostype('row_sparse'));
$a = mx->nd->sparse->zeros('row_sparse', $shape);
my $row_ids = mx->nd->array([0, 2], dtype=>'int64');
$kv->row_sparse_pull('3', out=>$a, row_ids=>$row_ids);
print $a->aspdl;    #> [[1 1 1] [0 0 0] [1 1 1]]
my $duplicate_row_ids = mx->nd->array([2, 2], dtype=>'int64');
$kv->row_sparse_pull('3', out=>$a, row_ids=>$duplicate_row_ids);
print $a->aspdl;    #> [[0 0 0] [0 0 0] [1 1 1]]
my $unsorted_row_ids = mx->nd->array([1, 0], dtype=>'int64');
$kv->row_sparse_pull('3', out=>$a, row_ids=>$unsorted_row_ids);
print $a->aspdl;    #> [[1 1 1] [1 1 1] [0 0 0]]

# ---- set_gradient_compression: the page describes it; these are values of the kinds that it names

$kv = mx->kv->create('local');
$kv->init(3, mx->nd->zeros([4]));
$kv->set_gradient_compression({ type => '2bit', threshold => 0.5 });
$a = mx->nd->zeros([4]);
$kv->push(3, mx->nd->array([0.75, -0.75, 0.25, 0]));
$kv->pull(3, out=>$a);
print $a->aspdl;    #> [0.5 -0.5 0 0]
$kv->push(3, mx->nd->array([0.25, -0.25, 0.25, 0]));    # the residuals 0.25, -0.25 and 0.25 are added to these
$kv->pull(3, out=>$a);
print $a->aspdl;    #> [0.5 -0.5 0.5 0]

# ---- set_optimizer, type, rank, num_workers, save_optimizer_states, load_optimizer_states

$kv = mx->kv->create('local');
$kv->init(3, mx->nd->ones([2]));
$kv->set_optimizer(mx->optimizer->create('sgd', learning_rate => 1, momentum => 0.5));
$kv->push(3, mx->nd->ones([2])*8);
$kv->pull(3, out=>$a = mx->nd->zeros([2]));
print $a->aspdl;    #> [-7 -7]
my $fname = File::Temp->new->filename;
$kv->save_optimizer_states($fname, dump_optimizer=>1);
$kv->load_optimizer_states($fname);
unlink $fname;
$kv->push(3, mx->nd->zeros([2]));                        # the momentum, -8, goes on with its half
$kv->pull(3, out=>$a);
print $a->aspdl;    #> [-11 -11]
printf "%s %d %d\n", $kv->type, $kv->rank, $kv->num_workers;    #> local 0 1

# ---- _set_updater, with key 3 of fours

$shape = [2,3];
$kv = mx->kv->create('local');
$kv->init(3, mx->nd->ones($shape)*4);
$a = mx->nd->zeros($shape);

my $update = sub { my ($key, $input, $stored) = @_;
    print "update on key: $key\n";
    $stored += $input * 2; };
$kv->_set_updater($update);
$kv->pull(3, out=>$a);
print $a->aspdl();    #> [[4 4 4] [4 4 4]]
$kv->push(3, mx->nd->ones($shape));    #> update on key: 3
$kv->pull(3, out=>$a);
print $a->aspdl();    #> [[6 6 6] [6 6 6]]

# ---- create, _barrier, _send_command_to_servers: 'dist' is for several processes; this one may be the only one

$kv = mx->kv->create('dist');
# Each worker is a server here, too, and executes commands while it sends one itself, or in run_commands. A process that
# is only a server has AI::MXNet::KVStoreServer's controller instead.
Polyverso::KVStore->set_controller(sub { my ($head, $body) = @_; print "command $head: $body\n" });
$kv->init(3, mx->nd->ones($shape) * ($kv->rank + 1));    # worker 0's are used
$kv->_barrier;
$kv->pull(3, out=>$a);
print $a->aspdl;    #> [[1 1 1] [1 1 1]]
$kv->_barrier;
if ($kv->rank == 0) {
    $kv->_send_command_to_servers(7, 'body');    #> command 7: body
} else {
    Polyverso::KVStore->run_commands(timeout => 60);
}
$kv->_barrier;
