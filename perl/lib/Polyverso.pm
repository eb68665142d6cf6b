package Polyverso;

use strict;
use warnings;

our $VERSION = '0.1.0';

use Exporter 'import';
use JSON::PP ();
use Polyverso::CAPI ();
use Polyverso::Error;
use Polyverso::Node;
use Polyverso::Values ();

our (@EXPORT_OK, %EXPORT_TAGS);

# Aliases every C function and constant under its own name: Polyverso::mv_init, Polyverso::MV_ESHAPE.
BEGIN {
    no strict 'refs';
    for my $name (sort keys %Polyverso::CAPI::) {
        if ($name =~ /\A[mk]v_/) {
            *{$name} = \&{"Polyverso::CAPI::$name"};
            push @{ $EXPORT_TAGS{functions} }, $name;
        }
        elsif ($name =~ /\A(?:MV|KV)_/) {
            my $value = ${"Polyverso::CAPI::$name"};
            *{$name} = sub () { $value };
            push @{ $EXPORT_TAGS{constants} }, $name;
        }
    }
    @EXPORT_OK = map { @$_ } values %EXPORT_TAGS;
    $EXPORT_TAGS{all} = [@EXPORT_OK];
}

# mv_init_options as a hash. log_level has no field of its own, and moves into the field `text`.
sub _options {
    my (%settings) = @_;
    my $level = delete $settings{log_level};
    $settings{text} = join ' ', grep { defined } $settings{text}, "log_level=$level" if defined $level;
    return %settings ? \%settings : undef;
}

# The settings of a call, as pairs or as a hash, with or without the class before them.
sub _settings {
    my ($function, @given) = @_;
    shift @given if @given && !ref $given[0] && UNIVERSAL::isa($given[0], __PACKAGE__);
    @given = %{ $given[0] } if @given == 1 && ref $given[0] eq 'HASH';
    return _options(Polyverso::Values::named("Polyverso->$function", @given));
}

sub init {
    my $settings = _settings(init => @_);
    local $Polyverso::Names::FURTHER_OPTIONS = ' log_level';
    Polyverso::CAPI::mv_init($settings);
    return Polyverso::Node->_new(0);
}

# Calls $work->($node) between init and shutdown, or abort if it dies.
sub with {
    my ($class, @settings) = @_;
    my $work = pop @settings;
    Polyverso::Error->_refuse($Polyverso::CAPI::MV_EINVAL, 'the last argument must be a code reference, not ' . Polyverso::Lists::shown($work))
        unless Polyverso::Values::is_code($work);
    my $node = $class->init(@settings);
    my ($in_list, @results) = wantarray;
    my $done = eval { @results = $in_list ? $work->($node) : scalar $work->($node); 1 };
    if (!$done) {
        my $failure = $@;
        $node->abort($failure);
        Polyverso::Exit::caught();
        die $failure;
    }
    $node->shutdown if $node->_is_open;
    return $in_list ? @results : $results[0];
}

sub open_node {
    my $settings = _settings(open_node => @_);
    local $Polyverso::Names::FURTHER_OPTIONS = ' log_level';
    return Polyverso::Node->_new(Polyverso::CAPI::mv_node_open($settings));
}

sub doctor {
    my ($class, @how) = @_;
    my $how   = Polyverso::Values::options(['reach'], @how);
    my $flags = $Polyverso::CAPI::MV_JSON | ($how->{reach} ? $Polyverso::CAPI::MV_REACH : 0);
    return JSON::PP->new->decode(Polyverso::CAPI::mv_doctor_text(0, $flags));
}

sub inspect_checkpoint {
    my ($class, $path) = @_;
    return JSON::PP->new->decode(Polyverso::CAPI::mv_checkpoint_inspect($path));
}

1;

__END__

=encoding utf8

=head1 NAME

Polyverso - shares model parameters between processes, in any language

=head1 SYNOPSIS

    use PDL;
    use Polyverso;

    my $node    = Polyverso->init(sync => 1);
    my $weights = $node->matrix(rows => 10, cols => 64);
    $weights->add(ones(64, 10));           # a PDL of dims (64, 10), or [[...], ...]
    my $values = $weights->get;            # a PDL; an array reference without PDL, or with as => 'array'
    $node->shutdown;

A script that is started directly is a cluster of one process. C<polyverso run -n 4 -- perl script.pl> makes it a
cluster of four. Other members of a cluster may be written in Python, Lua or C.

=head1 METHODS

=head2 Polyverso->init(%settings)

Joins the cluster that the settings or the environment describe, and returns a L<Polyverso::Node> when all of its
processes have joined. The settings are pairs, or in a hash. Each C<init> that succeeds requires one C<shutdown> of its
node. All settings have defaults; F<polyverso.h> describes these and further ones (C<mv_init_options>):

=over

=item sync

1: all tables that do not set a staleness are in sync mode.

=item role, rank, nodes, master, bind, secret

The place in the cluster, which C<polyverso run> or another launcher sets. C<role> is C<all>, C<worker> or C<server>.

=item timeout_ms, gate_timeout_ms, init_timeout_ms, heartbeat_timeout_ms

The default time limits in milliseconds: of one request to one server (60,000); of calls that wait for other workers,
such as C<barrier>, the creation of a table, and a C<get> in sync mode (600,000); of C<init> itself (60,000); and of the
silence after which another process counts as lost (5,000). The C<timeout> of a single call is in seconds.

=item replicas

The number of other servers that keep a copy of each server's tables, and take over if it dies (F<docs/failures.md>). All
processes must agree. Default 0.

=item log_level

C<trace>, C<debug>, C<info>, C<warn>, C<error> or C<off>.

=item checkpoint, metrics

Worker 0 saves checkpoints in this directory (F<docs/checkpoints.md>). The process serves its metrics at this port
(F<docs/operations.md>).

=back

=head2 Polyverso->with(%settings, sub { my ($node) = @_; ... })

Calls the code with the node of C<init(%settings)>, returns its result, and shuts the node down. If the code dies, it
aborts the node, so that the other processes get the text, and dies again: also inside of an C<eval>.

=head2 Polyverso->open_node(%settings)

Opens a further node in this process, for tests and for several clusters at once.

=head2 Polyverso->doctor(%how)

A diagnosis as nested hashes and arrays: what was detected, and how to fix what does not work. F<docs/operations.md> has
the fields. It describes the running node if there is one, otherwise what C<init> would do. With C<< reach => 1 >> it
only checks the connection to the master that C<POLYVERSO_MASTER> names.

=head2 Polyverso->inspect_checkpoint($path)

The contents of a checkpoint, a directory of checkpoints, or one of their files, as nested hashes and arrays: tables
with their specs, files, sizes, checksums, and C<damage>: what is wrong with it, if anything. Needs no node.

=head1 C FUNCTIONS

Every function of F<polyverso.h> is here under its own name, C<Polyverso::mv_table_add>, and can be imported:
C<use Polyverso qw(:functions :constants)>. The C parameters (data, count, dtype) are one argument: a PDL of type float,
double, longlong, long or byte, or ushort for the bits of bfloat16, whose memory is used without a copy; or a packed
string, whose bytes are MV_RAW. Results are written into a PDL in place, or into a string of the right length. Row ids
are a longlong or indx PDL, or C<pack 'q*', @ids>. Options are hash references, or flags as a number. Output parameters
of C are return values; a status other than MV_OK is thrown.

=head1 ERRORS

Every failed call throws a L<Polyverso::Error>.

=head1 SEE ALSO

L<Polyverso::Node>, L<Polyverso::Table>, L<Polyverso::Request>, L<Polyverso::Error>

=cut
