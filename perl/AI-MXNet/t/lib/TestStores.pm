package TestStores;

# Helpers for tests: small stores of AI::MXNet, and the outcome of failing code.

use strict;
use warnings;

use AI::MXNet qw(mx);
use Exporter qw(import);

our @EXPORT = qw(failure pulled store_of);

# The name of the status that the code throws, the text of another error, or 'nothing'.
sub failure { my ($code) = @_; return eval { $code->(); 1 } ? 'nothing' : ref $@ ? $@->name : "$@" }

sub pulled {
    my ($kv, $key, $shape) = @_;
    $kv->pull($key, out => my $out = mx->nd->zeros($shape // [2]));
    return $out->aspdl->unpdl;
}

# A local store with these keys and values.
sub store_of {
    my (%values) = @_;
    my $kv = mx->kv->create;
    $kv->init($_, mx->nd->array($values{$_})) for sort keys %values;
    return $kv;
}

1;
