package TestStores;

# Small stores of AI::MXNet, and what fails.

use strict;
use warnings;

use AI::MXNet qw(mx);
use Exporter qw(import);

our @EXPORT = qw(failure pulled store_of);

# The name of the status that the code ends with, its text if it has none, or 'nothing'.
sub failure { my ($code) = @_; return eval { $code->(); 1 } ? 'nothing' : ref $@ ? $@->name : "$@" }

sub pulled {
    my ($kv, $key, $shape) = @_;
    $kv->pull($key, out => my $out = mx->nd->zeros($shape // [2]));
    return $out->aspdl->unpdl;
}

# A store with keys of two numbers.
sub store_of {
    my (%values) = @_;
    my $kv = mx->kv->create;
    $kv->init($_, mx->nd->array($values{$_})) for sort keys %values;
    return $kv;
}

1;
