package Polyverso::Handle;

# Base class of objects that own a handle of the library. close() closes the handle, and so does the destructor.
# Subclasses define closes_with(), the name of the C function that closes the handle.

use strict;
use warnings;

use Polyverso::CAPI ();

sub handle { $_[0]{handle} }

sub close {
    my ($self) = @_;
    my $handle = $self->{handle} or return;
    $self->{handle} = 0;
    Polyverso::CAPI->can($self->closes_with)->($handle);
    return;
}

# Refuses to be copied: the destructor of the copy would close the original's handle.
sub STORABLE_freeze {
    my ($self) = @_;
    require Polyverso::Error;
    Polyverso::Error->throw($Polyverso::CAPI::MV_ENOSYS, ref($self) . ' is a handle: Storable can\'t copy it');
}

sub DESTROY {
    my ($self) = @_;
    return if ${^GLOBAL_PHASE} eq 'DESTRUCT';
    local $@;
    eval { $self->close };
    return;
}

1;
