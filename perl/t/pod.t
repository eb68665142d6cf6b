# Each public method is in its module's manual.

use strict;
use warnings;

use FindBin;
use Test::More;

# Modules that are internal, and functions that other modules call.
my %is_internal = map { $_ => 1 } qw(Exit Handle KVStore/Stored KVStore/Values Lists Names Values);
my %is_helper   = map { $_ => 1 } qw(
    DistLearn::call DistLearn::closes_with DistLearn::handle_of DistLearn::has_peers DistLearn::leaves
    DistLearn::named_leaves DistLearn::rows DistLearn::sorted_keys Error::new Error::throw Gossip::closes_with
    Group::closes_with Group::from_handle Group::operation Group::options KVStore::closes_with Table::milliseconds
);

for my $file (glob "$FindBin::Bin/../lib/Polyverso/*.pm $FindBin::Bin/../lib/Polyverso/*/*.pm") {
    my ($name) = $file =~ m{/Polyverso/(.*)\.pm\z};
    next if $is_internal{$name};
    open my $lines, '<', $file or die "$file: $!";
    my ($code, $manual) = split /^__END__$/m, do { local $/; <$lines> };
    my @places = (($manual // '') =~ /^=(?:head2|item) (.*)$/mg, ($manual // '') =~ /C<+ ?([^>]*)/g);
    my %is_listed = map { $_ => 1 } map { /(\w+)/g } @places;
    my @missing = grep { !$is_listed{$_} && !$is_helper{"${name}::$_"} } $code =~ /^sub ([a-z]\w*)/mg;
    is("@missing", '', "$name: every method is in the manual");
}

done_testing;
