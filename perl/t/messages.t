# What mistakes are answered with: the method that the program called, the value, and what to do.

use strict;
use warnings;

use Test::More;

use JSON::PP ();
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
    qr/\A\$table->add: unknown option "row"; known: .*rows.*; did you mean "rows"\?\z/, sub { $table->add([1], row => [1]) },
    qr/\A\$table->add: unknown option "as"/, sub { $table->add([1, 2, 3], as => 'array') },
    qr/\A\$table->get: unknown option "forget"/, sub { $table->get(forget => 1) },
    qr/\A\$table->add: async returns a request .* forget returns nothing: pass only one/, sub { $table->add([1, 2, 3], async => 1, forget => 1) },
    qr/\A\$request->wait: options are name => value pairs, and "5" has no value\z/, sub { $table->get(async => 1)->wait(5) },
    qr/\A\$request->wait: unknown option "timout"; known: timeout; did you mean "timeout"\?/, sub { $table->get(async => 1)->wait(timout => 5) },
    qr/\A\$table->scan: unknown option "size"/, sub { $map->scan(size => 5) },
    qr/\A\$group->allreduce: options are name => value pairs, and "sum" has no value\z/, sub { $group->allreduce($tensor, 'sum') },
    qr/\A\$group->barrier: options are name => value pairs, and "5" has no value\z/, sub { $group->barrier(5) },
    qr/\A\$group->drain: unknown option "time"; known: timeout\z/, sub { $group->drain(time => 5) },
    qr/\A\$group->allreduce: unknown op "summ"; known: avg, .*; did you mean "sum"\?\z/, sub { $group->allreduce($tensor, op => 'summ') },
    qr/\A\$kv->push: unknown option "prioritty"; known: .*; did you mean "priority"\?\z/, sub { $store->push('w', $tensor, prioritty => 1) },
    qr/\A\$kv->barrier: options are name => value pairs/, sub { $store->barrier(5) },
    qr/\A\$kv->save_optimizer_states: unknown option "dump"; known: dump_optimizer/, sub { $store->save_optimizer_states('/dev/null', dump => 1) },
    qr/\APolyverso::KVStore->run_commands: unknown option "time"; known: node timeout/, sub { Polyverso::KVStore->run_commands(time => 1) },
    qr/\A\$table->get: timeout is "soon", not a number of seconds\z/, sub { $table->get(timeout => 'soon') },
    map({
        my $wrong = $_;
        (qr/\A\$table->get: timeout is $wrong: a number of seconds is needed, 0 or more/i, sub { $table->get(timeout => $wrong) },
         qr/\A\$node->barrier: timeout is $wrong: /i, sub { $node->barrier(timeout => $wrong) });
    } -5, -0.5, 'nan', '-inf'),
    qr/\A\$node->array: option staleness = -1 is out of range: 0 or more is needed\z/, sub { $node->array(size => 3, staleness => -1) },
    qr/\APolyverso->open_node: option sync = -1 is out of range: 0 or more/, sub { Polyverso->open_node(sync => -1) },
    qr/\APolyverso->open_node: timeout_ms=-5 .* at least 1 ms, or -1 for none\z/, sub { Polyverso->open_node(timeout_ms => -5) },
    qr/\APolyverso->open_node: option timeout_ms = -?nan: a 64-bit integer/, sub { Polyverso->open_node(timeout_ms => 'nan' + 0) },
);

answers('ids and nodes',
    qr/\A\$table->get: an id is a reference to array, not a 64-bit integer\z/, sub { $table->get(rows => [[1, 2]]) },
    qr/\A\$table->get: an id is "apple", not a 64-bit integer\z/, sub { $map->get(keys => ['apple']) },
    qr/\APolyverso::KVStore->create: a Polyverso::Node is needed, not "x"\z/, sub { Polyverso::KVStore->create('local', 'x') },
    qr/\APolyverso::Group->open: a Polyverso::Node is needed, not "node"\z/, sub { Polyverso::Group->open('node') },
    qr/\A\$group->allgather: a PDL or a tensor is needed, not 5\z/, sub { $group->allgather(5) },
    qr/\A\$node->open: name is undef\z/, sub { $node->open },
    qr/\Athere is no table "kk"; did you mean "k"\?\z/, sub { $node->open('kk') },
    qr/\A\$node->load: path is undef\z/, sub { $node->load },
    qr/\A\$node->on_membership: a code reference is needed, or undef for none, not "5"\z/, sub { $node->on_membership(5) },
);

answers('init and tables',
    qr/\APolyverso->init: unknown option "loglevel"; known: .* log_level; did you mean "log_level"\?\z/, sub { Polyverso->init(loglevel => 'error') },
    qr/\APolyverso->open_node: .*\brank=1 is set, but nodes is not/, sub { Polyverso->open_node(rank => 1) },
    qr/\A\$node->array: size is missing: pass size => \$number\z/, sub { $node->array(init => [1, 2]) },
    qr/\A\$node->matrix: rows is missing/, sub { $node->matrix(cols => 3) },
    qr/\A\$node->array: unknown option "nam"; known: device dtype init merge name .*mean "name"/, sub { $node->array(size => 3, nam => 'x') },
    qr/\A\$node->array: unknown updater "adam"; .*; did you mean "mx.adam"\?\z/, sub { $node->array(size => 3, updater => 'adam') },
    qr/\A\$kv->set_optimizer: updater sgd has no parameter "learning_rate"; .*; mx.sgd has/, sub { $store->set_optimizer('sgd', learning_rate => 1) },
    qr/\APolyverso->open_node: option role = "wrker": a number or one of worker server all/, sub { Polyverso->open_node(role => 'wrker') },
    qr/\A\$node->sparse: unknown option "init"; known: cols .*initial /, sub { $node->sparse(rows => 3, init => [1]) },
);

answers('groups',
    qr/\A\$group->broadcast: root is "me", not an integer\z/, sub { $group->broadcast($tensor, root => 'me') },
    qr/\A\$group->reduce: root is "me", not an integer\z/, sub { $group->reduce($tensor, root => 'me') },
    qr/\A\$group->allreduce: bytes can't be reduced: .* dtype => 'f32'\z/, sub { my $bytes = pack 'f*', 1, 2; $group->allreduce($bytes) },
    qr/\A\$group->allreduce_custom: a code reference is needed, not undef\z/, sub { $group->allreduce_custom($tensor) },
    qr/\A\$group->allreduce_many: a reference to an array .* is needed, not a reference/, sub { $group->allreduce_many({}) },
    qr/\A\$group->allreduce_many: a PDL or a tensor is needed, not a reference to array/, sub { $group->allreduce_many([[1, 2]]) },
    qr/\A\$group->broadcast_many: root is "x"/, sub { $group->broadcast_many([$tensor], root => 'x') },
);

my $DistLearn = 'Polyverso::DistLearn';
my $sgd       = "${DistLearn}::AllReduceSGD"->new($group);
answers('strategies',
    qr/\A${DistLearn}::AllReduceEA->new: tau is undef, not an integer\z/, sub { "${DistLearn}::AllReduceEA"->new($group) },
    qr/\A${DistLearn}::AllReduceEA->new: unknown option "tua"; .*mean "tau"/, sub { "${DistLearn}::AllReduceEA"->new($group, tua => 1, alpha => 1) },
    qr/\A${DistLearn}::AsyncEA->new: alpha is "x", not a number\z/, sub { "${DistLearn}::AsyncEA"->new($table, tau => 1, alpha => 'x') },
    qr/\A${DistLearn}::LocalSGD->new: .*"steps" has no value/, sub { "${DistLearn}::LocalSGD"->new($group, 'steps') },
    qr/\A${DistLearn}::CompressedAllReduce->new: .*"ratio"/, sub { "${DistLearn}::CompressedAllReduce"->new($group, 'int8', ratio => 0.1) },
    qr/\A\$sgd->sum_gradients: unknown option "timout"; .*did you mean "timeout"/, sub { $sgd->sum_gradients([$tensor], timout => 5) },
);
is($sgd->sum_gradients([$tensor], timeout => 5), 1, 'a time-out by its name');
is($sgd->sum_gradients([$tensor], 5),            1, 'or by its place');
ok("${DistLearn}::AllReduceEA"->new($group, tau => 2, alpha => 0.1), 'tau and alpha by their names');
ok("${DistLearn}::DiLoCo"->new($group, 10, { fragments => 2 }),      'the number of steps by its place, settings in a hash');
ok("${DistLearn}::CompressedAllReduce"->new($group, 'topk', ratio => 0.1), 'the parameters of a codec as pairs');

my $yaml   = 'nodes: [{name: a, host: 127.0.0.1, port: 0}]';
my $gossip = Polyverso::Gossip->open(\$yaml, 'a');
answers('gossip',
    qr/\APolyverso::Gossip->open: a text is given .*: pass a reference to it/, sub { Polyverso::Gossip->open($yaml, 'a') },
    qr/\APolyverso::Gossip->open: the path .* is needed, not a reference to hash\z/, sub { Polyverso::Gossip->open({ nodes => [] }, 'a') },
    qr/\A\$gossip->update_send: the loss is undef, not a number\z/, sub { $gossip->update_send([$tensor]) },
    qr/\A\$gossip->update_send: the loss is "low", not a number\z/, sub { $gossip->update_send([$tensor], 'low') },
    qr/\A\$gossip->update_send: data must be/, sub { $gossip->update_send([1, 2], 0.5) },
    qr/\A\$gossip->add_peer: the port is undef, not an integer\z/, sub { $gossip->add_peer('b', '127.0.0.1') },
    qr/\A\$gossip->set_clock: the clock is undef, not a number\z/, sub { $gossip->set_clock },
    qr/\A\$gossip->state: the gossip node is closed\z/, sub { $gossip->close; $gossip->state },
);

answers('packed strings in groups',
    qr/\A\$group->allreduce: dtype is for packed strings/, sub { $group->allreduce($tensor, dtype => 'f32') },
    qr/\A\$group->allreduce: the result needs a variable in place of a constant\z/, sub { $group->allreduce('abcd', dtype => 'f32') },
    qr/\A\$group->allreduce: a string of 5 bytes is not a whole number of f32/, sub { $group->allreduce(my $five = 'abcde', dtype => 'f32') },
);

answers('tensors',
    qr/\A\$tensor->set: a number is needed, not "a"\z/, sub { $tensor->set(0, 'a') },
    qr/\A\$tensor->get: an integer is needed, not "a"\z/, sub { $tensor->get('a') },
    qr/\Atensor arithmetic: a number is needed, not undef\z/, sub { $tensor + undef },
    qr/\APolyverso::Tensor->uniform: the seed is undef, not an integer\z/, sub { Polyverso::Tensor->uniform([2]) },
    qr/\APolyverso::Tensor->sparse: the height is undef, not an integer\z/, sub { Polyverso::Tensor->sparse([1], [[1, 2]]) },
    qr/\APolyverso::Tensor->zeros: the shape is missing: pass a number, or several as/, sub { Polyverso::Tensor->zeros },
    qr/\APolyverso::Tensor->ones: .* not '3': several dimensions are one argument/, sub { Polyverso::Tensor->ones(2, 3) },
    qr/\A\$tensor->item: 2 elements/, sub { $tensor->item },
);
is_deeply(Polyverso::Tensor->range(5)->slice(3)->to_list, [3, 4], 'a slice up to the end');
is_deeply(Polyverso::Tensor->ones(4)->reshape(2, 2)->shape, [2, 2], 'a shape as a list');

SKIP: {
    skip 'needs PDL', 1 unless Polyverso::Values::have_pdl();
    my $counts = PDL->can('ushort')->(PDL->new([1, 300]));
    my $refuse = qr/a PDL of ushort is not supported here: \$pdl->long has its integers/;
    answers('ushort is not taken for the bits of bf16',
        $refuse, sub { $group->allreduce($counts) },
        $refuse, sub { $group->allreduce_many([$counts]) },
        $refuse, sub { $group->allgather($counts) },
        $refuse, sub { $group->broadcast($counts) },
        $refuse, sub { $sgd->sum_gradients({ w => $counts }) },
        $refuse, sub { $store->init('counts', $counts) },
        $refuse, sub { $store->push('w', [$counts]) },
    );
}

SKIP: {
    skip 'needs PDL', 1 unless Polyverso::Values::have_pdl();
    my $bad    = PDL->new([1, 2, 3])->float->setbadif(PDL->new([0, 1, 0]));
    my $refuse = qr/a PDL has 1 bad values: replace them/;
    answers('bad values of a PDL',
        qr/\A\$table->add: a PDL has 1 bad values/, sub { $table->add($bad) },
        $refuse, sub { Polyverso::Tensor->copy_of($bad) },
        $refuse, sub { Polyverso::Tensor->view($bad) },
        $refuse, sub { Polyverso::Tensor->zeros([$bad->nelem])->assign($bad) },
        $refuse, sub { $group->allreduce($bad) },
        $refuse, sub { $sgd->sum_gradients([$bad]) },
        $refuse, sub { $store->push('w', $bad) },
        $refuse, sub { Polyverso::Gossip->open(\$yaml, 'a')->publish($bad, 0.5) },
    );
    $table->set(PDL->new([1, 2, 3])->setbadif(PDL->zeroes(3)));
    is_deeply($table->get(as => 'array'), [1, 2, 3], 'a PDL that could have some, and has none');
}

answers('doctor', qr/\APolyverso->doctor: unknown option "reech"; known: reach; did you mean "reach"\?\z/, sub { Polyverso->doctor(reech => 1) });
is($node->doctor->{running},                    JSON::PP::true(), 'the diagnosis of this node');
is(ref Polyverso->doctor->{findings},           'ARRAY',          'and of what is here');
is(ref Polyverso->doctor(reach => 1)->{findings}, 'ARRAY',        'or only of the master');

is(Polyverso::Group->open($node, [0])->size, 1, 'worker ids may be in an array');

done_testing;
