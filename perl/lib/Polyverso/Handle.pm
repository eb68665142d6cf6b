package Polyverso::Handle;

# What holds a handle of the library's and gives it back: by close, or when the last one forgets it. A class of this says by closes_with() which
# function takes it back.

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

# A copy of a handle would close the original.
sub STORABLE_freeze {
    my ($self) = @_;
    require Polyverso::Error;
    Polyverso::Error->throw($Polyverso::CAPI::MV_ENOSYS, ref($self) . ' is a handle, which Storable can\'t copy');
}

sub DESTROY {
    my ($self) = @_;
    return if ${^GLOBAL_PHASE} eq 'DESTRUCT';
    local $@;
    eval { $self->close };
    return;
}

1;
