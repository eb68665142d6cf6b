package AI::MXNet;

use strict;
use warnings;

our $VERSION = '1.4';

use AI::MXNet::Base ();
use AI::MXNet::Context;
use AI::MXNet::KVStore;
use AI::MXNet::LRScheduler;
use AI::MXNet::NDArray;
use AI::MXNet::NS 'global';
use AI::MXNet::Optimizer;
use AI::MXNet::Random;

# Loaded last: in a process that a DMLC tracker has started as a server or scheduler it does not return.
use AI::MXNet::KVStoreServer;

sub nd           { 'AI::MXNet::NDArray' }
sub ndarray      { 'AI::MXNet::NDArray' }
sub context      { 'AI::MXNet::Context' }
sub random       { 'AI::MXNet::Random' }
sub rnd          { 'AI::MXNet::Random' }
sub test_utils   { require AI::MXNet::TestUtils; return 'AI::MXNet::TestUtils' }
sub optimizer    { 'AI::MXNet::Optimizer' }
sub opt          { 'AI::MXNet::Optimizer' }
sub lr_scheduler { 'AI::MXNet::LRScheduler' }
sub kv           { 'AI::MXNet::KVStore' }
sub kvstore      { 'AI::MXNet::KVStore' }
sub base         { 'AI::MXNet::Base' }
sub name         { 'AI::MXNet' }

sub cpu        { my (undef, $id) = @_; return AI::MXNet::Context->cpu($id) }
sub cpu_pinned { my (undef, $id) = @_; return AI::MXNet::Context->cpu_pinned($id) }
sub gpu        { my (undef, $id) = @_; return AI::MXNet::Context->gpu($id) }
sub num_gpus   { AI::MXNet::Context->num_gpus }

1;

__END__

=encoding utf8

=head1 NAME

AI::MXNet - MXNet's arrays, key-value stores and optimizers for Perl, on Polyverso

=head1 SYNOPSIS

    use AI::MXNet qw(mx);

    my $weight = mx->nd->array([[1, 2], [3, 4]]);
    my $kv     = mx->kv->create('local');           # 'dist_sync' under `polyverso run`
    $kv->init('weight', $weight);
    $kv->set_optimizer(mx->optimizer->create('sgd', learning_rate => 0.1));
    $kv->push('weight', [map { mx->nd->ones([2, 2], ctx => mx->cpu($_)) } 0 .. 3]);
    $kv->pull('weight', out => $weight);
    print $weight->aspdl;                           # [[0.6 1.6] [2.6 3.6]]

=head1 DESCRIPTION

The part of AI::MXNet with which scripts share parameters: its names, argument orders and defaults, implemented by this
library. There are no symbols, no modules and no Gluon. F<docs/coming-from-mxnet.md> lists the differences.

After C<use AI::MXNet 'mx'> (or another name) C<mx> is a name of this class in all packages.

=head1 METHODS

=head2 nd, ndarray

L<AI::MXNet::NDArray>, with C<< mx->nd->sparse >>, L<AI::MXNet::NDArray::Sparse>, and C<< mx->nd->random >>.

=head2 kv, kvstore

L<AI::MXNet::KVStore>; L<AI::MXNet::KVStoreServer>.

=head2 optimizer, opt, lr_scheduler

L<AI::MXNet::Optimizer>, L<AI::MXNet::LRScheduler>.

=head2 random, rnd

L<AI::MXNet::Random>.

=head2 context, cpu($id), cpu_pinned($id), gpu($id), num_gpus

L<AI::MXNet::Context>.

=head2 test_utils, base, name

L<AI::MXNet::TestUtils>, L<AI::MXNet::Base>.

=cut
