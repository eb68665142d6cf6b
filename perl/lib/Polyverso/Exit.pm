package Polyverso::Exit;

# How a program leaves its clusters when it ends: properly if it succeeded, otherwise as lost, with the text that it died
# of.

use strict;
use warnings;

use Carp ();
use Polyverso::CAPI ();

$Carp::Internal{ +__PACKAGE__ }++;    # the program's handler begins a trace with the line that died

my %owner;    # the nodes that were opened here: handle => process id
my ($handler, $text);

# A handler for uncaught errors that remembers their text, and then calls the program's own handler, if there is one.
sub _chain {
    my ($theirs) = @_;
    return sub {
        $text = "$_[0]" if defined $^S && (!$^S || _ends_with());
        my $code = ref $theirs ? $theirs : _named($theirs);
        $code->(@_) if $code;    # not by goto: Perl calls a handler again for an error inside of it, unless its frame is there
        return;
    };
}

# Whether the error ends the code of Polyverso->with: it is inside of no other eval.
sub _ends_with {
    for (my $depth = 1; my ($package, $called) = (caller $depth)[0, 3]; $depth++) {
        return $package eq 'Polyverso' if $called eq '(eval)';
    }
    return 0;
}

# Polyverso->with has caught the error, and has told the other processes.
sub caught { undef $text; return }

# A handler can be set by its name, of which main is the default package.
sub _named {
    my ($name) = @_;
    return undef if !defined $name || $name eq '' || $name eq 'DEFAULT' || $name eq 'IGNORE';
    no strict 'refs';
    return \&{ $name =~ /::|'/ ? $name : "main::$name" };
}

# Watches for the error that the program dies of. Called again by later calls: the program may have set a handler.
sub watch {
    my $now = $SIG{__DIE__};
    return if $handler && ref $now && $now == $handler;
    $SIG{__DIE__} = $handler = _chain($now);
    return;
}

sub opened { my ($node) = @_; $owner{$node} = $$; watch(); return }
sub closed { my ($node) = @_; delete $owner{$node}; return }

# Whether the program is dying of an uncaught error: objects that are destroyed now do not leave properly.
sub is_dying { return defined $text }

sub _is_open { my ($node) = @_; return eval { Polyverso::CAPI::mv_rank($node); 1 } }

sub _shut_down {
    my ($node) = @_;
    while (_is_open($node)) {
        eval { Polyverso::CAPI::mv_shutdown($node); 1 } or warn $@;
    }
    return;
}

# Ends the nodes of this process. Several nodes are left to the library's exit handler, which ends them at once: they may
# wait for each other.
sub leave {
    my ($status) = @_;
    local ($@, $!, $SIG{__DIE__});
    my @nodes = grep { $owner{$_} == $$ && _is_open($_) } sort keys %owner;
    if ($status == 0) {
        _shut_down(@nodes) if @nodes == 1;
        return;
    }
    my $reason = $text // "its process ended with exit status $status without calling shutdown()";
    $reason =~ s/\s+\z//;
    eval { Polyverso::CAPI::mv_abort($_, $reason) } for @nodes;
    return;
}

END {
    my $status = $?;
    leave($status) if %owner;
    $? = $status;
}

1;

__END__

=encoding utf8

=head1 NAME

Polyverso::Exit - how a program leaves its clusters when it ends; internal

=cut
