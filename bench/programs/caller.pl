# What a call costs from Perl, in a cluster of one process: the operations of caller.py; the dialogue of batch.h.

use strict;
use warnings;
use PDL::Lite;
use Polyverso;
use Time::HiRes qw(clock_gettime CLOCK_MONOTONIC);

$| = 1;
my ($WARM_UP, $FEWEST_SAMPLES) = (0.1, 3);

my $node = Polyverso->init;
my ($count, $table, $data, $out) = (0);
my ($matrix, $keyvalue) = ($node->matrix(rows => 1000, cols => 4), $node->keyvalue(cols => 4));
my $ids = PDL->pdl(PDL::longlong(), [7, 300, 12, 999]);
my ($block, $received) = map { PDL->$_(PDL::float(), 4, 4) } qw(ones zeroes);

sub fail { my ($text) = @_; $text =~ tr/"\\\n/'''/; print qq({"error": "$text"}\n); exit 1 }

my %some = (
    rows_add => sub { $matrix->add($block, rows => $ids) for 1 .. $_[0] },
    rows_get => sub { $matrix->get(rows => $ids, out => $received) for 1 .. $_[0] },
    keys_add => sub { $keyvalue->add($block, keys => $ids) for 1 .. $_[0] },
    keys_get => sub { $keyvalue->get(keys => $ids, out => $received) for 1 .. $_[0] },
);

sub prepare {
    my ($operation, $bytes) = @_;
    return prepare_some($operation) if $some{$operation};
    if ($count != $bytes / 4) {
        $table->destroy if $table;
        $count = $bytes / 4;
        $table = $node->array(size => $count);
        $data  = PDL->ones(PDL::float(), $count);
        $out   = undef;
    }
    $table->set([0], rows => [$count - 1]);
    # Only for gets, so that the driver can tell what memory an add takes.
    $out //= PDL->zeroes(PDL::float(), $count) if $operation =~ /get/;
    my $handle = $table->handle;
    my %repeat = (
        add        => sub { Polyverso::mv_table_add($handle, $data) for 1 .. $_[0] },
        get        => sub { Polyverso::mv_table_get($handle, $out) for 1 .. $_[0] },
        method_add => sub { $table->add($data) for 1 .. $_[0] },
        method_get => sub { $table->get(out => $out) for 1 .. $_[0] },
    );
    return $repeat{$operation} // fail("unknown operation $operation");
}

# The four rows or keys, and what gets receive, hold ones.
sub prepare_some {
    my ($operation) = @_;
    $_->set($block, rows => $ids) for $matrix, $keyvalue;
    $received .= 0;
    return $some{$operation};
}

sub measure {
    my ($repeat, $seconds, $block) = @_;
    my ($done, $begun, @samples) = (0, clock_gettime(CLOCK_MONOTONIC));
    do { $repeat->($block); $done += $block } while (clock_gettime(CLOCK_MONOTONIC) < $begun + $WARM_UP * $seconds);
    my $now = clock_gettime(CLOCK_MONOTONIC);
    my $end = $now + $seconds;
    while ($now < $end || @samples < $FEWEST_SAMPLES) {
        $repeat->($block);
        $done += $block;
        my $then = $now;
        $now = clock_gettime(CLOCK_MONOTONIC);
        push @samples, ($now - $then) / $block;
    }
    return ($done, sort { $a <=> $b } @samples);
}

sub check_some {
    my ($operation, $done) = @_;
    my $adds = $operation =~ /add/;
    my $values = $adds ? ($operation =~ /rows/ ? $matrix : $keyvalue)->get(rows => $ids) : $received;
    fail("$operation: $values after $done adds of 1 to 1") if PDL::any($values != 1 + ($adds ? $done : 0));
}

sub check {
    my ($operation, $done) = @_;
    return check_some($operation, $done) if $some{$operation};
    my $sum = $table->get(rows => [$count - 1], as => 'array')->[0];
    fail("$operation: $sum after $done adds of 1") if $operation =~ /add/ && $sum != $done;
}

print qq({"ready": true}\n);
while (<STDIN>) {
    my ($operation, $bytes, $seconds, $block) = split;
    my ($done, @samples) = measure(prepare($operation, $bytes), $seconds, $block);
    check($operation, $done);
    my $sum = 0;
    $sum += $_ for @samples;
    printf qq({"median": %.9g, "mean": %.9g, "least": %.9g, "p99": %.9g, "count": %d}\n), $samples[@samples / 2],
        $sum / @samples, $samples[0], $samples[int($#samples * 0.99)], @samples * $block;
}
$node->shutdown;
