package AI::MXNet::NS;

# `use AI::MXNet::NS;` gives a class an import method that defines a function for each given name, which returns the
# class: after `use AI::MXNet 'mx'`, mx->nd is AI::MXNet->nd. With 'global' the name is a name of the class in all
# packages.

use strict;
use warnings;

sub import {
    my (undef, $global) = @_;
    my $class = caller;
    no strict 'refs';
    *{"${class}::import"} = sub {
        my (undef, @names) = @_;
        my $target = caller;
        for my $name (map { s/\W//gr } @names) {
            *{"${target}::$name"} = sub () { $class };
            *{"${name}::"} = *{"${class}::"} if $global;
        }
    };
    return;
}

1;

__END__

=encoding utf8

=head1 NAME

AI::MXNet::NS - short names of classes, as in C<use AI::MXNet 'mx'>

=head1 SYNOPSIS

    use AI::MXNet 'mx';                  # a class that says `use AI::MXNet::NS 'global';`
    use AI::MXNet::NDArray 'nd';         # one that says `use AI::MXNet::NS;`

    print mx, ' ', nd, "\n";             # AI::MXNet AI::MXNet::NDArray
    print nd->ones([2])->aspdl, "\n";    # [1 1]

=head1 DESCRIPTION

C<use AI::MXNet::NS;> in a class gives it an C<import> method that defines a function for each requested name, which
returns the class. With C<'global'> the name is a name of the class in all packages.

=cut
