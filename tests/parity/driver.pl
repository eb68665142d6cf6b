# Runs a scenario file (see scenarios.txt) through Perl's raw functions: driver.pl FILE

use strict;
use warnings;

use PDL::Lite;
use Polyverso;

my %PDL_TYPE = (
    f32 => \&PDL::float, f64 => \&PDL::double, i64 => \&PDL::longlong, i32 => \&PDL::long, u8 => \&PDL::byte,
    i8 => \&PDL::sbyte,
    rows => \&PDL::longlong
);
my %HALF = (f16 => Polyverso::MV_F16(), bf16 => Polyverso::MV_BF16());
my %variables;

# Memory with numbers of a kind, as C functions take it: a PDL, or a string for 16-bit floats, which PDL lacks.
sub memory {
    my ($kind, @items) = @_;
    return Polyverso::CAPI::pack_halves($HALF{$kind}, pack 'd*', @items) if $HALF{$kind};
    # 64-bit integers must not be converted to doubles.
    return PDL->can('longlong')->(map { int } @items) if $kind eq 'rows' || $kind eq 'i64';
    return $PDL_TYPE{$kind}->([@items]);
}

# The value of a token, as a Perl user would write it.
sub value_of {
    my ($token) = @_;
    return undef if $token eq 'nil';
    return $variables{$token} if $token =~ /\A\$/;
    return Polyverso->can($token)->() if $token =~ /\A[MK]V_/;
    return $1 if $token =~ /\A"(.*)"\z/;
    return $token + 0 if $token =~ /\A-?[0-9]+(?:\.[0-9]+)?\z/;
    if ($token =~ /\A\{(.*)\}\z/) {
        my %pairs = $1 =~ /(\w+)=("[^"]*"|[^,]+)/g;
        return { map { $_ => value_of($pairs{$_}) } keys %pairs };
    }
    if (my ($kind, $items) = $token =~ /\A(\w+)\[(.*)\]\z/) {
        my @items = split /,/, $items;
        return [map { value_of($_) } @items] if $kind eq 'list';
        return pack 'f*', @items if $kind eq 'raw32';
        return memory($kind, @items);
    }
    return $token;
}

sub equal { my ($a, $b) = @_; return defined $a && "$a" eq "$b" }

sub agrees {
    my ($result, $token) = @_;
    return index($result, value_of(substr $token, 1)) >= 0 if $token =~ /\A~/;
    my $expected = value_of($token);
    if (ref $expected eq 'HASH') { return !grep { !equal($result->{$_}, $expected->{$_}) } keys %$expected }
    if (ref $expected eq 'ARRAY') {
        return @$result == @$expected && !grep { !equal($result->[$_], $expected->[$_]) } 0 .. $#$expected;
    }
    return equal($result, $expected);
}

# Runs one line. Returns the problem, or nothing.
sub step {
    my ($name, @rest) = @_;
    if ($name eq 'buffer') {
        $variables{ $rest[0] } = memory($rest[1], (77) x $rest[2]);
        return;
    }
    if ($name eq 'array') {
        $variables{ $rest[0] } = value_of($rest[1]);
        return;
    }
    if ($name eq 'expect') {
        my ($got, $wanted) = ($variables{ $rest[0] }, value_of($rest[1]));
        return $got eq $wanted ? undef : 'holds ' . unpack 'H*', $got unless ref $got;
        return $got->nelem == $wanted->nelem && PDL::all($got == $wanted) ? undef : "holds $got";
    }
    return Polyverso->can($rest[0]) ? undef : 'is missing' if $name eq 'function';
    if ($name eq 'constant') {
        my $constant = Polyverso->can($rest[0]);
        return $constant && $constant->() == $rest[1] ? undef : 'is ' . ($constant ? $constant->() : 'missing');
    }
    my @wanted;
    for my $i (0 .. $#rest) {
        next unless $rest[$i] =~ /\A(?:->|=>|!)\z/;
        @wanted = splice @rest, $i;
        last;
    }
    my @arguments = map { value_of($_) } @rest;
    my $result;    # an array if there are several results
    unless (eval { my @all = Polyverso->can($name)->(@arguments); $result = @all > 1 ? \@all : $all[0]; 1 }) {
        my $error = $@;
        return "died: $error" unless ref $error && $error->isa('Polyverso::Error');
        return @wanted && $wanted[0] eq '!' && $wanted[1] eq $error->name ? undef : "threw $error";
    }
    # String arguments are passed by alias; @arguments has copies of them.
    $variables{ $rest[$_] } = $arguments[$_] for grep { $rest[$_] =~ /\A\$/ } 0 .. $#rest;
    return unless @wanted;
    return 'returned ' . ($result // 'nothing') if $wanted[0] eq '!';
    $variables{ $wanted[1] } = $result if $wanted[0] eq '=>';
    return 'returned ' . ($result // 'nothing') if $wanted[0] eq '->' && !agrees($result, $wanted[1]);
    return;
}

my ($scenarios, $steps) = (0, 0);
open my $lines, '<:encoding(UTF-8)', $ARGV[0] or die "$ARGV[0]: $!\n";
while (my $line = <$lines>) {
    $line =~ s/\A\s+|\s+\z//g;
    next if $line eq '' || $line =~ /\A#/;
    if ($line =~ /\Ascenario /) { $scenarios++; next }
    my $wrong = step($line =~ /(?:[^\s"]|"[^"]*")+/g);
    $steps++;
    die "perl: line $.: $line: $wrong\n" if defined $wrong;
}
print "perl: $scenarios scenarios, $steps steps\n";
