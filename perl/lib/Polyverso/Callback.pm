package Polyverso::Callback;

# Calls of functions of the program that must be followed by something, whichever way the program leaves them: Perl's
# `next` and `last` also leave a function.

use strict;
use warnings;

use Polyverso::CAPI ();
use Polyverso::Error;

# Calls the code. Returns false, with the error in $@, if it dies or leaves by `next` or `last`.
sub run {
    my ($what, $code) = @_;
    my $has_returned;
    {    # to Perl, a loop: it is what `next` and `last` end
        $has_returned = eval { $code->(); 1 };
    }
    return 1 if $has_returned;
    eval { Polyverso::Error->throw($Polyverso::CAPI::MV_EINVAL, "$what was left by next or last: end it with return") } unless ref $@ || length $@;
    return 0;
}

# Calls the code at the end of the object, if now() has not: after `last LABEL`, too, which leaves everything up to that loop.
sub at_end { my ($class, $code) = @_; return bless { code => $code }, $class }

sub now { my ($self) = @_; return (delete $self->{code})->() }

sub DESTROY { my ($self) = @_; $self->now if $self->{code}; return }

1;

__END__

=encoding utf8

=head1 NAME

Polyverso::Callback - calls of the program's functions; internal

=cut
