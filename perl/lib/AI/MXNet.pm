package AI::MXNet;

use strict;
use warnings;

our $VERSION = '1.4';

use AI::MXNet::Base ();
use AI::MXNet::Context;
use AI::MXNet::NDArray;
use AI::MXNet::NS;
use AI::MXNet::Random;

sub nd           { 'AI::MXNet::NDArray' }
sub ndarray      { 'AI::MXNet::NDArray' }
sub context      { 'AI::MXNet::Context' }
sub random       { 'AI::MXNet::Random' }
sub rnd          { 'AI::MXNet::Random' }
sub test_utils   { require AI::MXNet::TestUtils; return 'AI::MXNet::TestUtils' }
sub base         { 'AI::MXNet::Base' }
sub name         { 'AI::MXNet' }

sub cpu        { my (undef, $id) = @_; return AI::MXNet::Context->cpu($id) }
sub cpu_pinned { my (undef, $id) = @_; return AI::MXNet::Context->cpu_pinned($id) }
sub gpu        { my (undef, $id) = @_; return AI::MXNet::Context->gpu($id) }
sub num_gpus   { AI::MXNet::Context->num_gpus }

1;
