# ai_mxnet_kvstore_seed.t, the manual page's examples, with mx->gpu(0..3) as the page has them: four emulated devices.

use strict;
use warnings;

use Test::More;

BEGIN {
    plan skip_all => 'DEVICE_EMULATION names no plug-in: run this test through ctest' unless $ENV{DEVICE_EMULATION};
    @ENV{qw(POLYVERSO_DEVICE_PLUGIN POLYVERSO_EMULATION)} = ($ENV{DEVICE_EMULATION}, 'devices=4');
}

our $CARDS = 1;
do './t/ai_mxnet_kvstore_seed.t' or die $@ || $!;
