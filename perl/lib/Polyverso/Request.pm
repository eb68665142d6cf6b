package Polyverso::Request;

use strict;
use warnings;

use Polyverso::Handle ();
our @ISA = ('Polyverso::Object');

use Polyverso::CAPI ();
use Polyverso::Error;
use Scalar::Util ();

sub _new {
    my ($class, $handle, $result) = @_;
    return bless { handle => $handle, result => $result }, $class;
}

sub DESTROY {
    my ($self) = @_;
    return if !defined $self->{handle} || ${^GLOBAL_PHASE} eq 'DESTRUCT';
    local $@;
    eval { Polyverso::CAPI::mv_request_release($self->{handle}) };    # fails after the node's end, or in a forked child
    return;
}

sub _details { my ($self) = @_; return defined $self->{handle} ? 'unfinished' : $self->{error} ? 'failed' : 'done' }
sub _instead { return 'wait for it in the process that made the call' }

sub handle { $_[0]{handle} }

# The request has finished. Rethrows what a signal handler has died of at the end of the library's call: it is not the
# outcome of the request.
sub _finish {
    my ($self, $error) = @_;
    undef $self->{handle};
    return unless $error;
    die $error unless _is_outcome($error);
    $self->{error} = $error;
    return;
}

sub _is_outcome { my ($error) = @_; return Scalar::Util::blessed($error) && $error->isa('Polyverso::Error') }

# Whether the request still exists after a failed wait. A time-out of the wait keeps it; an error of the request itself
# releases it.
sub _alive {
    my ($self) = @_;
    local $@;
    return 1 if eval { Polyverso::CAPI::mv_request_error($self->{handle}); 1 };
    my $error = $@;
    return !(Scalar::Util::blessed($error) && $error->family eq 'handle');
}

sub done {
    my ($self) = @_;
    return 1 unless defined $self->{handle};
    my $done;
    return $done ? ($self->_finish, 1)[-1] : 0
        if eval { $done = Polyverso::CAPI::mv_request_test($self->{handle}); 1 };
    my $error = $@;
    die $error if !_is_outcome($error) && $self->_alive;
    $self->_finish($error);
    return 1;
}

sub wait {
    my ($self, @how) = @_;
    my $how = Polyverso::Values::options(['timeout'], @how);
    if (defined $self->{handle}) {
        my $milliseconds = Polyverso::Table::milliseconds($how->{timeout});
        if (eval { Polyverso::CAPI::mv_request_wait($self->{handle}, $milliseconds); 1 }) {
            $self->_finish;
        }
        else {
            my $error = $@;
            die $error if $self->_alive;
            $self->_finish($error);
        }
    }
    die $self->{error} if $self->{error};
    return $self->{result} ? $self->{result}->() : ();
}

sub cancel {
    my ($self) = @_;
    return unless defined $self->{handle};
    Polyverso::CAPI::mv_request_cancel($self->{handle});
    $self->_finish(Polyverso::Error->new($Polyverso::CAPI::MV_ECANCELED));
    return;
}

1;

__END__

=encoding utf8

=head1 NAME

Polyverso::Request - an unfinished asynchronous call

=head1 SYNOPSIS

    use Polyverso;

    my $node    = Polyverso->init;
    my $table   = $node->array(size => 3);
    my $request = $table->get(async => 1);
    # ... something else meanwhile ...
    my $values = $request->wait(timeout => 5);
    $node->shutdown;

=head1 METHODS

=over

=item wait(timeout => seconds)

Waits and returns the call's result: the values of a get, nothing for an add. If the call has failed, every C<wait>
throws its error. If C<timeout> passes, it throws an error of the family C<timeout>, and the call continues.

=item done

True once the call has finished, successfully or not. Never waits.

=item cancel

Withdraws the call; an add may have been applied nevertheless.

=item handle

The C<mv_request>; undef once the call has finished.

=back

The call of a dropped request continues. Its outcome is discarded, except for an add's error, which the table's next
call, C<barrier> or C<shutdown> throws.

=cut
