package AI::MXNet::NS;

# `use AI::MXNet::NS;` gives a class an import that makes functions of any names, each of which returns the class:
# after `use AI::MXNet 'mx'`, mx->nd is AI::MXNet->nd.

use strict;
use warnings;

sub import {
    my $class = caller;
    no strict 'refs';
    *{"${class}::import"} = sub {
        my (undef, @names) = @_;
        my $target = caller;
        *{"${target}::$_"} = sub () { $class } for map { s/\W//gr } @names;
    };
    return;
}

1;

__END__

=encoding utf8

=head1 NAME

AI::MXNet::NS - short names of classes, as in C<use AI::MXNet 'mx'>

=cut
