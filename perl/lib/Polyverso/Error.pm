package Polyverso::Error;

use strict;
use warnings;

use Scalar::Util ();

use Polyverso::Handle ();
use Polyverso::Names ();

use overload '""' => 'message', bool => sub { 1 }, fallback => 1;

my $OURS = $Polyverso::Names::OURS;

# Objects and methods in place of handles and C functions, for callers who use these.
sub _in_perl {
    my ($text) = @_;
    $text =~ s/\b(\d+) is a closed [\w -]+ handle/Polyverso::Handle::closed($1) \/\/ $&/e;
    return Polyverso::Names::in_perl($text);
}

# The C functions throw objects of this class too.
sub new {
    my ($class, $status, $text) = @_;
    $text = Polyverso::CAPI::mv_status_message($status) unless length($text // '');
    my $self = bless {
        status => $status,
        name   => Polyverso::CAPI::mv_status_name($status),
        family => Polyverso::CAPI::mv_status_family($status),
        text   => scalar(caller) =~ $OURS ? _in_perl($text) : $text,
    }, $class;

    # The message shows the line of the user's call, not a line of the bindings.
    for (my $depth = 0; my ($package, $file, $line) = caller $depth; $depth++) {
        next if $package =~ $OURS;
        @$self{qw(file line)} = ($file, $line);
        last;
    }
    return $self;
}

# Gives the error of a callback to the errors that it causes, also in other processes. Returns the status that the
# callback ends with.
sub _report {
    my ($error) = @_;
    local $@;
    my $ours = Scalar::Util::blessed($error) && $error->isa(__PACKAGE__);
    my $text = "$error" =~ s/\s+\z//r;
    eval { Polyverso::CAPI::mv_callback_error($text) };    # without memory, the errors have the status only
    return $ours ? $error->status : $Polyverso::CAPI::MV_EINVAL;
}

sub throw { my $class = shift; die $class->new(@_) }

# Like throw(). The text begins with the method that the program has called.
sub _refuse {
    my ($class, $status, $text) = @_;
    my $method = Polyverso::Names::method();
    die $class->new($status, defined $method ? "$method: $text" : $text);
}

sub status { $_[0]{status} }
sub name   { $_[0]{name} }
sub family { $_[0]{family} }
sub text   { $_[0]{text} }

sub message {
    my ($self) = @_;
    my $where = defined $self->{file} ? " at $self->{file} line $self->{line}.\n" : "\n";
    return "$self->{name}: $self->{text}$where";
}

1;

__END__

=encoding utf8

=head1 NAME

Polyverso::Error - the exception that a failed call throws

=head1 SYNOPSIS

    use Polyverso;

    my $node  = Polyverso->init;
    my $table = $node->array(size => 3);
    unless (eval { $table->add([1, 2], timeout => 5); 1 }) {
        my $error = $@;
        die $error unless ref $error && $error->isa('Polyverso::Error');
        print $error->name, ': ', $error->text, "\n" if $error->family eq 'argument';
    }
    $node->shutdown;

=head1 METHODS

=over

=item status

The status number, such as C<Polyverso::MV_ESHAPE>.

=item name

The name of the status, C<"MV_ESHAPE">.

=item family

C<argument>, C<handle>, C<state>, C<timeout>, C<peer>, C<step>, C<interrupt> or C<system>.

=item text

A sentence about this call, with names and numbers. Calls of methods have Perl's names in it, C<< $table->add >>; calls
of the C functions have theirs, C<mv_table_add>.

=item message

Name, text, and the line of the call. The object has this value as a string.

=back

=cut
