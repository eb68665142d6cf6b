# Paths are bytes, as for Perl's open(), and names are text.

use strict;
use warnings;
use utf8;

use Test::More;

use Encode ();
use File::Temp ();
use Polyverso;
use Polyverso::Gossip;
use Polyverso::KVStore;

my $folder = File::Temp->newdir;
my $node   = Polyverso->init(log_level => 'error');
my $name   = 'größe €';
my $store  = Polyverso::KVStore->create('local');
$store->init($name, Polyverso::Tensor->ones([2]));
$store->set_optimizer('mx.sgd');
my $table = $node->array(size => 2, name => $name);
is($table->name, $name, 'the name of a table is text');

sub there { my ($path) = @_; return Encode::encode('UTF-8', $path) }

for ([text => "$folder/$name"], [bytes => there("$folder/as bytes $name")], ['of another encoding' => "$folder/stra\xdfe"]) {
    my ($kind, $path) = @$_;
    my $bytes = $kind eq 'text' ? there($path) : $path;
    utf8::downgrade($path) if $kind ne 'text';
    $node->save($path);
    ok(-d $bytes, "$kind: a checkpoint");
    is(eval { $node->load($path); 1 }, 1, "$kind: is loaded");
    $store->save_optimizer_states("$path/states");
    ok(-f "$bytes/states", "$kind: states");
    is(eval { $store->load_optimizer_states("$path/states"); 1 }, 1, "$kind: are loaded");
    open my $file, '>', "$bytes/nodes.yaml" or die "$bytes: $!";
    print $file "nodes: [{name: a, host: 127.0.0.1, port: 0}]\n";
    close $file;
    isa_ok(eval { Polyverso::Gossip->open("$path/nodes.yaml", 'a') }, 'Polyverso::Gossip', "$kind: nodes");
}

# An error's text is text, whatever the path is.
ok(!eval { $node->load("$folder/nowhere \xdf"); 1 }, 'no such folder');
my $text = $@->text;
ok(utf8::valid($text), 'is an error with a valid text');
like($text, qr/nowhere \xdf/, 'that shows the bytes');
ok(!eval { $node->open('x' . 'é' x 200 . "\0"); 1 } && utf8::valid($@->text), 'a text that is cut');

$node->shutdown;

# Settings with paths and secrets.
my $there = there("$folder/settings €");
my $other = Polyverso->init(log_level => 'error', checkpoint => $there, checkpoint_every_ms => 50);
$other->array(size => 1);
for (1 .. 200) { last if -d $there; select undef, undef, undef, 0.05 }
ok(-d $there, 'the setting checkpoint');
$other->shutdown;

done_testing;
