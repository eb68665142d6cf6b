# One member of soak.py's clusters, in Perl: see member.py.

use strict;
use warnings;

use IO::Handle;
use PDL::Lite;
use Polyverso;
use Polyverso::DistLearn;
use Polyverso::Gossip;
use Polyverso::Group;
use Polyverso::KVStore;
use Polyverso::Tensor;

my @KEYS  = qw(a b c);
my %CONSISTENCIES = (async => [], sync => [staleness => 0], stale => [staleness => 2], merge => [merge => 1]);
my ($node, $number, %things, @later);

open my $out,      '>', "$ENV{SOAK}/out-$ENV{POLYVERSO_RANK}" or die $!;
open my $commands, '<', "$ENV{SOAK}/in-$ENV{POLYVERSO_RANK}"  or die $!;
$out->autoflush(1);

sub tell_driver { print {$out} join(' ', @_) =~ s/\n/ /gr, "\n"; return }
sub thing { return $things{ $_[0] } // die "skip\n" }

sub ones { my ($worker, $size, $width) = @_; return [map { $_ % $width == $worker ? 1 : 0 } 0 .. $size - 1] }

sub extremes {
    my ($values, $width) = @_;
    my (@least, @most);
    for my $i (0 .. $#$values) {
        my $w = $i % $width;
        $least[$w] = $values->[$i] if !defined $least[$w] || $values->[$i] < $least[$w];
        $most[$w]  = $values->[$i] if !defined $most[$w]  || $values->[$i] > $most[$w];
    }
    return join ' ', map { sprintf '%g %g', $least[$_], $most[$_] } 0 .. $width - 1;
}

sub read_table {
    my ($name, $method) = @_;
    my $table = thing($name);
    return extremes($table->{made}->$method(as => 'array', $table->{keys} ? (keys => $table->{keys}) : ()), $table->{width});
}

my %calls = (
    init => sub { $node = Polyverso->init; return $node->worker_id },
    table => sub {
        my ($name, $kind, $consistency, $size, $width) = @_;
        my %more = (name => $name, @{ $CONSISTENCIES{$consistency} });
        my $made = $kind eq 'array' ? $node->array(size => $size, %more) : $node->keyvalue(cols => 1, %more);
        $things{$name} = { made => $made, size => $size, width => $width, $kind eq 'array' ? () : (keys => [0 .. $size - 1]) };
        return;
    },
    add => sub {
        my ($name, $worker, $how) = @_;
        my $table  = thing($name);
        my $values = ones($worker, $table->{size}, $table->{width});
        my @keys   = $table->{keys} ? grep { $values->[$_] } @{ $table->{keys} } : ();
        my @how    = @keys ? (keys => \@keys) : ();
        $values = [(1) x @keys] if @keys;
        if ($how eq 'async') { push @later, [$number, $table->{made}->add($values, @how, async => 1)] }
        else                 { $table->{made}->add($values, @how) }
        return;
    },
    wait => sub {
        for my $each (splice @later) {
            if   (eval { $each->[1]->wait; 1 }) { tell_driver($each->[0], 'ok') }
            else                                { tell_driver($each->[0], 'error', $@->name, $@->text) }
        }
        return;
    },
    get     => sub { return read_table($_[0], 'get') },
    look    => sub { return read_table($_[0], 'peek') },
    peek    => sub { my ($name, $element) = @_; return thing($name)->{made}->peek(rows => [$element], as => 'array')->[0] + 0 },
    barrier => sub { $node->barrier; return },
    clock   => sub { thing($_[0])->{made}->clock; return },
    status  => sub { return length $node->status_text },
    store   => sub {
        my ($kind, $size, $width) = @_;
        my $made = Polyverso::KVStore->create($kind);
        $made->init(\@KEYS, [map { Polyverso::Tensor->zeros([$size]) } @KEYS]);
        $made->set_optimizer('sgd rate=1') if $made->rank == 0;
        $made->barrier if $kind =~ /\Adist/;
        $things{store} = { made => $made, size => $size, width => $width };
        return;
    },
    push => sub {
        my $store = thing('store');
        my $values = Polyverso::Tensor->copy_of([map { -$_ } @{ ones($_[0], $store->{size}, $store->{width}) }]);
        $store->{made}->push(\@KEYS, [map { $values } @KEYS]);
        return;
    },
    pull => sub {
        my $store = thing('store');
        my @values = map { Polyverso::Tensor->zeros([$store->{size}]) } @KEYS;
        $store->{made}->pull(\@KEYS, \@values);
        return extremes([map { @{ $_->to_list } } @values], $store->{width});
    },
    group  => sub { $things{group} = Polyverso::Group->open($node); return },
    reduce => sub {
        my $group = thing('group');
        my $values = $group->allreduce(PDL->ones(PDL::float(), $_[0]));
        return sprintf '%d %g %g', $group->size, $values->min, $values->max;
    },
    shrink => sub {
        my $old = thing('group');
        $things{group} = $old->shrink;
        $old->close;
        return $things{group}->size;
    },
    elastic => sub {
        my ($steps) = @_;
        my $values   = PDL::float([($node->worker_id) x 300]);
        my $strategy = Polyverso::DistLearn::AllReduceEA->new(thing('group'), 2, 0.1);
        $strategy->average_parameters([$values]) for 1 .. $steps;
        $strategy->synchronize_center([$values]);
        $strategy->read_center([$values]);
        $strategy->close;
        return sprintf '%g %g', $values->min, $values->max;
    },
    gossip => sub {
        my ($name, $value) = @_;
        my $text = "nodes: [{name: $name, host: 127.0.0.1, port: 0}]\ntimeout_ms: 500\n";
        $things{gossip} = { made => Polyverso::Gossip->open(\$text, $name), model => PDL::float([($value) x 1000]) };
        return $things{gossip}{made}->state->{address} =~ /:(\d+)$/ ? $1 : 0;
    },
    peer => sub { my ($name, $port) = @_; thing('gossip')->{made}->add_peer($name, '127.0.0.1', $port); return },
    step => sub {
        my $gossip = thing('gossip');
        $gossip->{made}->update_send([$gossip->{model}], 1);
        my $factor = $gossip->{made}->update_wait([$gossip->{model}], 1);
        return sprintf '%g %.9g %.9g', $factor, $gossip->{model}->min, $gossip->{model}->max;
    },
    shutdown => sub { $node->shutdown; return },
);
my %is_repeated = map { $_ => 1 } qw(get pull barrier);

tell_driver(0, 'pid', $$);
while (my $line = <$commands>) {
    ($number, my $name, my @arguments) = split ' ', $line;
    last if $name eq 'quit';
    tell_driver($number, 'begin');
    for my $left (reverse 0 .. 4) {
        my $result;
        if (eval { die "skip\n" if $name !~ /\A(?:init|gossip|peer|step)\z/ && !$node; $result = $calls{$name}->(@arguments); 1 }) {
            tell_driver($number, 'ok', $result // ()) unless @later && $later[-1][0] == $number;
            last;
        }
        my $error = $@;
        if (!ref $error && $error eq "skip\n") { tell_driver($number, 'skip'); last }
        die $error unless ref $error && $error->isa('Polyverso::Error');
        my $again = $is_repeated{$name} && $left > 0 && $error->name eq 'MV_EPEERLOST';
        tell_driver($number, $again ? 'again' : 'error', $error->name, $error->text);
        last unless $again;
    }
}
