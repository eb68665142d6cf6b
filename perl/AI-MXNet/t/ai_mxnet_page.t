# examples/mxnet-kvstore/page.pl prints what the manual page of AI::MXNet::KVStore says, alone and in two workers.

use strict;
use warnings;

use Test::More;

use FindBin;

my $script = "$FindBin::Bin/../../../examples/mxnet-kvstore/page.pl";

# Numbers and brackets, whatever the spaces and lines between them.
sub words {
    my ($text) = @_;
    $text =~ s/([\[\]])/ $1 /g;
    return [split ' ', $text];
}

open my $source, '<', $script or die "$script: $!";
my $expected = words(join ' ', map { /#> (.*)/ ? $1 : () } <$source>);
cmp_ok(@$expected, '>', 200, 'the script says what it prints');

is_deeply(words(scalar qx{$^X $script 2>&1}), $expected, 'one process');
is($?, 0, 'and it ends well');

SKIP: {
    skip 'DEVICE_EMULATION names no plug-in', 2 unless $ENV{DEVICE_EMULATION};
    local @ENV{qw(POLYVERSO_DEVICE_PLUGIN POLYVERSO_EMULATION)} = ($ENV{DEVICE_EMULATION}, 'devices=4');
    is_deeply(words(scalar qx{$^X $script 2>&1}), $expected, 'with four GPUs');
    is($?, 0, 'which ends well');
}

my @lines = qx{polyverso run -n 2 -- $^X $script 2>&1};
is($?, 0, 'two workers end well');
for my $worker (0, 1) {
    is_deeply(words(join '', map { /^\[w$worker\] ?(.*)/s ? $1 : () } @lines), $expected, "worker $worker");
}

done_testing;
