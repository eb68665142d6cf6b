package Polyverso::Object;

# Base class of the objects that stand for something of the library: a text for people, comparison by identity, and no
# copies, which would share a handle with the original.

use strict;
use warnings;

use Scalar::Util ();

sub _same { return ref $_[1] ? Scalar::Util::refaddr($_[0]) == Scalar::Util::refaddr($_[1]) : Scalar::Util::refaddr($_[0]) == $_[1] }
sub _is   { return ref $_[1] ? Scalar::Util::refaddr($_[0]) == Scalar::Util::refaddr($_[1]) : $_[0]->_text eq ($_[1] // '') }

use overload
    '""'   => '_text',
    'bool' => sub { 1 },
    '0+'   => sub { Scalar::Util::refaddr($_[0]) },
    '=='   => sub { _same(@_) },
    '!='   => sub { !_same(@_) },
    'eq'   => sub { _is(@_) },
    'ne'   => sub { !_is(@_) },
    fallback => 1;

# The object as text: its class, what it is, and whether it is closed.
sub _text {
    my ($self) = @_;
    local ($@, $SIG{__DIE__});
    my $details = eval { $self->_details } // '';
    return ref($self) . '(' . join(', ', grep { length } $details, $self->_state // '') . ')';
}
sub _details { return '' }
sub _state   { return undef }    # text, once the object is closed

sub _instead { return 'open another one' }    # what to do where a copy is refused

sub STORABLE_freeze {
    my ($self) = @_;
    require Polyverso::Error;
    Polyverso::Error->throw($Polyverso::CAPI::MV_ENOSYS,
        ref($self) . ' is a handle of this process: Storable can\'t copy it; ' . $self->_instead);
}

# A new thread gets undef in place of these objects: both threads would close the handle.
sub CLONE_SKIP { return 1 }

package Polyverso::Handle;

# Base class of objects that own a handle of the library. close() closes the handle, and so does the destructor.
# Subclasses define closes_with(), the name of the C function that closes the handle. Fields: handle; node, the handle
# of the object's node.

our @ISA = ('Polyverso::Object');

use Polyverso::CAPI ();
use Polyverso::Exit ();

# The address of each object => a hash of its handle, node, label, and state. Weak references to the objects in its place
# would make Perl panic at the end of a thread, because threads do not get the objects (CLONE_SKIP).
my %live;

sub CLONE { %live = (); return }

sub _adopt {
    my ($self) = @_;
    Polyverso::Exit::watch();
    my %record = (handle => $self->{handle}, node => $self->{node} // -1, label => $self->_label);
    $live{ Scalar::Util::refaddr($self) } = $self->{record} = \%record;
    return $self;
}

sub _state { my ($self) = @_; return $self->{record}{state} }
sub _has_ended { my ($self, $state) = @_; $self->{record}{state} = $state; return }

sub _forget { my ($self) = @_; delete $live{ Scalar::Util::refaddr($self) }; return }

sub _label { my ($self) = @_; return 'the ' . lc(ref($self) =~ s/.*:://r) }

sub handle { my ($self) = @_; return $self->_state ? 0 : $self->{handle} }

# What an error says about a closed handle, in place of its number; undef if no object has it.
sub closed {
    my ($handle) = @_;
    my ($record) = grep { $_->{handle} == $handle } values %live;
    return undef unless $record;
    my $state = $record->{state} // 'closed';
    return $record->{label} . ($state eq 'after shutdown' ? ' can\'t be used after shutdown' : " is $state");
}

# The node has ended, and with it everything of it.
sub ended {
    my ($node) = @_;
    $_->{state} //= 'after shutdown' for grep { $_->{node} == $node } values %live;
    return;
}

sub close {
    my ($self) = @_;
    return if $self->_state;
    $self->_has_ended('closed');
    return if eval { Polyverso::CAPI->can($self->closes_with)->($self->{handle}); 1 };
    my $error = $@;
    $self->_has_ended(undef) if eval { $error->name eq 'MV_EREENTRANT' };    # a store inside its updater stays open
    die $error;
}

sub DESTROY {
    my ($self) = @_;
    return if ${^GLOBAL_PHASE} eq 'DESTRUCT';
    $self->_forget;
    return if Polyverso::Exit::is_dying();    # the process leaves as lost, with what it died of
    local ($@, $!);
    eval { $self->close };    # fails after the node's shutdown, which has closed everything of the node
    return;
}

1;
