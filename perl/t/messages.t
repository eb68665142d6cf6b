# What mistakes are answered with: the method that the program called, the value, and what to do.

use strict;
use warnings;

use Test::More;

use Polyverso;
use Polyverso::DistLearn;
use Polyverso::Gossip;
use Polyverso::Group;
use Polyverso::KVStore;
use Polyverso::Tensor;

my $node   = Polyverso->init(log_level => 'error');
my $table  = $node->array(size => 3, name => 't');
my $map    = $node->keyvalue(name => 'k');
my $group  = Polyverso::Group->open($node);
my $store  = Polyverso::KVStore->create('local');
my $tensor = Polyverso::Tensor->ones([2]);
$store->init('w', $tensor);

# The text of the error. A warning of Perl's is one too: a mistake is reported once, where the program made it.
sub failure {
    my ($code) = @_;
    my @warnings;
    local $SIG{__WARN__} = sub { push @warnings, @_ };
    my $text = eval { $code->(); 1 } ? 'nothing' : ref $@ && $@->isa('Polyverso::Error') ? $@->text : "not an error of ours: $@";
    return join ' ', @warnings, $text;
}

sub answers {
    my ($name, @cases) = @_;
    subtest $name => sub {
        while (my ($wanted, $code) = splice @cases, 0, 2) { like(failure($code), $wanted, $wanted) }
    };
    return;
}

answers('options',
    qr/\A\$table->add: unknown option "row"; known: .*rows.*; did you mean "rows"\?\z/,        sub { $table->add([1], row => [1]) },
    qr/\A\$table->add: unknown option "as"/,                                                   sub { $table->add([1, 2, 3], as => 'array') },
    qr/\A\$table->get: unknown option "forget"/,                                               sub { $table->get(forget => 1) },
    qr/\A\$table->add: async returns a request .* forget returns nothing: pass only one/,      sub { $table->add([1, 2, 3], async => 1, forget => 1) },
    qr/\A\$request->wait: options are name => value pairs, and "5" has no value\z/,            sub { $table->get(async => 1)->wait(5) },
    qr/\A\$request->wait: unknown option "timout"; known: timeout; did you mean "timeout"\?/,  sub { $table->get(async => 1)->wait(timout => 5) },
    qr/\A\$table->scan: unknown option "size"/,                                                sub { $map->scan(size => 5) },
    qr/\A\$group->allreduce: options are name => value pairs, and "sum" has no value\z/,       sub { $group->allreduce($tensor, 'sum') },
    qr/\A\$group->barrier: options are name => value pairs, and "5" has no value\z/,           sub { $group->barrier(5) },
    qr/\A\$group->drain: unknown option "time"; known: timeout\z/,                             sub { $group->drain(time => 5) },
    qr/\A\$group->allreduce: unknown op "summ"; known: avg, .*; did you mean "sum"\?\z/,       sub { $group->allreduce($tensor, op => 'summ') },
    qr/\A\$kv->push: unknown option "prioritty"; known: .*; did you mean "priority"\?\z/,      sub { $store->push('w', $tensor, prioritty => 1) },
    qr/\A\$kv->barrier: options are name => value pairs/,                                      sub { $store->barrier(5) },
    qr/\A\$kv->save_optimizer_states: unknown option "dump"; known: dump_optimizer/,           sub { $store->save_optimizer_states('/dev/null', dump => 1) },
    qr/\APolyverso::KVStore->run_commands: unknown option "time"; known: node timeout/,        sub { Polyverso::KVStore->run_commands(time => 1) },
    qr/\A\$table->get: timeout is "soon", not a number of seconds\z/,                          sub { $table->get(timeout => 'soon') },
);

answers('ids and nodes',
    qr/\A\$table->get: an id is a reference to array, not a 64-bit integer\z/,                 sub { $table->get(rows => [[1, 2]]) },
    qr/\A\$table->get: an id is "apple", not a 64-bit integer\z/,                              sub { $map->get(keys => ['apple']) },
    qr/\APolyverso::KVStore->create: a Polyverso::Node is needed, not "x"\z/,                  sub { Polyverso::KVStore->create('local', 'x') },
    qr/\APolyverso::Group->open: a Polyverso::Node is needed, not "node"\z/,                   sub { Polyverso::Group->open('node') },
    qr/\A\$group->allgather: a PDL or a tensor is needed, not 5\z/,                            sub { $group->allgather(5) },
    qr/\A\$node->open: name is undef\z/,                                                       sub { $node->open },
    qr/\A\$node->load: path is undef\z/,                                                       sub { $node->load },
);
is(Polyverso::Group->open($node, [0])->size, 1, 'worker ids may be in an array');

done_testing;
