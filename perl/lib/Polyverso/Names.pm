package Polyverso::Names;

# The names of C functions in messages, as Perl has them: "mv_table_add" is "$table->add".

use strict;
use warnings;

use List::Util qw(max min);
use Polyverso::CAPI ();

# Whatever the prefixes below do not translate.
our %FUNCTION = (
    mv_init           => 'Polyverso->init',
    mv_init_options   => 'Polyverso->init',
    mv_node_open      => 'Polyverso->open_node',
    mv_table_create   => '$node->array',
    mv_table_open     => '$node->open',
    mv_table_list     => '$node->tables',
    mv_table_describe => '$table->info',
    mv_table_info     => '$table->info',
    mv_group_open      => 'Polyverso::Group->open',
    mv_group_open_host => 'Polyverso::Group->of_host',
    mv_group_join      => 'Polyverso::Group->join',
    mv_group_describe  => '$group->info',
    mv_reduce          => '$group->reduce',
    mv_reduce_scatter  => '$group->reduce_scatter',
    mv_broadcast       => '$group->broadcast',
    mv_broadcast_many  => '$group->broadcast_many',
    mv_allgather       => '$group->allgather',
    mv_alltoall_counts => '$group->alltoall',
    (map { ("mv_$_" => "\$group->$_") } qw(gather scatter alltoall send recv)),
    mv_allreduce_drain => '$group->drain',
    mv_cluster_drain => '$node->drain',
    mv_cluster_resize => '$node->resize',
    mv_membership_next => '$node->next_event',
    mv_gossip_open      => 'Polyverso::Gossip->open',
    mv_gossip_open_text => 'Polyverso::Gossip->open',
    mv_gossip_add       => '$gossip->publish',
    mv_tensor_create    => 'Polyverso::Tensor->zeros',
    mv_tensor_create_on => 'Polyverso::Tensor->zeros',
    mv_tensor_from      => 'Polyverso::Tensor->copy_of',
    mv_tensor_view      => 'Polyverso::Tensor->view',
    mv_tensor_sparse    => 'Polyverso::Tensor->sparse',
    mv_tensor_describe  => '$tensor->info',
    mv_request_test     => '$request->done',
    mv_request_error    => '$request->wait',
    kv_create           => 'Polyverso::KVStore->create',
    kv_next_update      => '$kv->update',
    kv_update_done      => '$kv->update',
    kv_set_controller   => 'Polyverso::KVStore->set_controller',
    kv_next_command     => 'Polyverso::KVStore->run_commands',
    kv_command_done     => 'Polyverso::KVStore->run_commands',
    mv_checkpoint_inspect => 'Polyverso->inspect_checkpoint',
    mv_doctor_text        => '$node->doctor',
    (map { ("mv_$_" => 'Polyverso::DistLearn::' . { sgd_open => 'AllReduceSGD', ea_open => 'AllReduceEA', async_ea_open => 'AsyncEA',
            local_sgd_open => 'LocalSGD', compressed_open => 'CompressedAllReduce' }->{$_} . '->new') }
            qw(sgd_open ea_open async_ea_open local_sgd_open compressed_open)),
    mv_sgd_sum_and_normalize => '$sgd->sum_and_normalize_gradients',
    mv_sgd_synchronize       => '$sgd->synchronize_parameters',
    mv_ea_average            => '$ea->average_parameters',
    mv_async_ea_average      => '$ea->average_parameters',
    mv_async_ea_read         => '$ea->read_center',
    mv_local_sgd_synchronize => '$sgd->synchronize_parameters',
    mv_compressed_average    => '$group->average_gradients',
    (map { ("mv_tensor_$_" => 'tensor arithmetic') } qw(binary scalar unary reduce)),
    (map { ("mv_table_${_}_rows" => "\$table->$_") } qw(add get peek set erase)),
    (map { ("mv_custom_$_" => '$group->allreduce_custom') } qw(begin next done end)),
);

# The first prefix that fits.
my @PREFIXES = (
    [mv_table_      => '$table->'],
    [mv_tensor_     => '$tensor->'],
    [mv_device_     => 'Polyverso::mv_device_'],
    [mv_group_      => '$group->'],
    [mv_allreduce   => '$group->allreduce'],
    [mv_request_    => '$request->'],
    [mv_gossip_     => '$gossip->'],
    [mv_checkpoint_ => '$node->'],
    [mv_strategy_   => '$strategy->'],
    [mv_compressed_ => '$compressed->'],
    [mv_async_ea_   => '$ea->'],
    [mv_local_sgd_  => '$sgd->'],
    [mv_sgd_        => '$sgd->'],
    [mv_ea_         => '$ea->'],
    [kv_            => '$kv->'],
    [mv_            => '$node->'],
);

sub _perl {
    my ($name) = @_;
    return $FUNCTION{$name} if $FUNCTION{$name};
    return $name unless Polyverso::CAPI->can($name);
    for my $each (@PREFIXES) {
        my ($prefix, $object) = @$each;
        return $object . (substr($name, length $prefix) =~ s/_text\z//r) if index($name, $prefix) == 0;
    }
    return $name;
}

# ------------------------------------------------------------------ the method that the program has called

# For each class, the name of an object, and the methods of the class itself.
my $STRATEGY = [qw(new)];
my %OBJECT = (
    'Polyverso'          => ['', [qw(init with open_node doctor inspect_checkpoint)]],
    'Polyverso::Node'    => ['$node'],
    'Polyverso::Table'   => ['$table'],
    'Polyverso::Request' => ['$request'],
    'Polyverso::Group'   => ['$group', [qw(open of_host)]],
    'Polyverso::KVStore' => ['$kv', [qw(create set_controller run_commands run_server)]],
    'Polyverso::Gossip'  => ['$gossip', [qw(open status)]],
    'Polyverso::Tensor'  => ['$tensor', [qw(zeros ones full range uniform normal copy_of view sparse)]],
    map({ ("Polyverso::DistLearn::$_" => ['$sgd', $STRATEGY]) } qw(AllReduceSGD LocalSGD DiLoCo)),
    map({ ("Polyverso::DistLearn::$_" => ['$ea', $STRATEGY]) } qw(AllReduceEA AsyncEA)),
    'Polyverso::DistLearn::CompressedAllReduce' => ['$compressed', $STRATEGY],
);

our $OURS = qr/\A(?:Polyverso|AI::MXNet)(?:::|\z)/;

# The method that the program has called, such as $table->add; undef for a function without such a name.
sub method {
    for (my $depth = 0; my ($package, undef, undef, $called) = caller $depth; $depth++) {
        next if $package =~ $OURS;
        my ($class, $method) = $called =~ /\A(.*)::(\w+)\z/ or return undef;
        my ($object, $own) = @{ $OBJECT{$class} // return undef };
        return grep({ $_ eq $method } @{ $own // [] }) ? "$class->$method" : "$object->$method";
    }
    return undef;
}

# ------------------------------------------------------------------ misspelt names

# The number of letters to insert, remove, replace or swap with a neighbour to get from one word to the other.
sub _distance {
    my ($from, $to) = @_;
    my @rows = ([0 .. length $to]);
    for my $i (1 .. length $from) {
        $rows[$i][0] = $i;
        for my $j (1 .. length $to) {
            my $same = substr($from, $i - 1, 1) eq substr($to, $j - 1, 1) ? 0 : 1;
            $rows[$i][$j] = min($rows[$i - 1][$j] + 1, $rows[$i][$j - 1] + 1, $rows[$i - 1][$j - 1] + $same);
            $rows[$i][$j] = min($rows[$i][$j], $rows[$i - 2][$j - 2] + 1)
                if $i > 1 && $j > 1 && substr($from, $i - 2, 2) eq reverse substr $to, $j - 2, 2;
        }
    }
    return $rows[-1][-1];
}

# '; did you mean "rows"?' for the most similar of the known names; nothing if none is similar.
sub did_you_mean {
    my ($name, @known) = @_;
    my %far = map { $_ => _distance(lc substr($name, 0, 100), lc) } @known;
    my ($best) = sort { $far{$a} <=> $far{$b} || $a cmp $b } @known;
    return defined $best && $far{$best} <= max(1, int(length($best) / 3)) ? qq{; did you mean "$best"?} : '';
}

# ------------------------------------------------------------------ messages

# Options of Perl's that the library does not list.
our $FURTHER_OPTIONS = '';

sub _quoted { my ($value) = @_; return $value eq 'undef' || $value eq 'a reference' ? $value : qq{"$value"} }

# A message with Perl's names. A reduction's own name after the function's says nothing new.
sub in_perl {
    my ($text) = @_;
    $text =~ s/(unknown option "[^"]*"; known: .*)\z/$1$FURTHER_OPTIONS/;
    $text .= did_you_mean($1, split /[ ,]+/, $2) if $text =~ /unknown \w+ "([^"]*)"; known: (.*)\z/ && $2 !~ /did you mean/;
    $text =~ s/\bis NULL\b/is undef/g;
    $text =~ s/\bargument \d+(?: \(\w+\))? must be (an? \w+), not (.*)\z/"$1 is needed, not " . _quoted($2)/es;    # C's argument
    $text =~ s/\bmv_init_options\.(\w+)=/$1=/g;
    $text =~ s/ in mv_init_options\.text\b//;
    $text =~ s/(?<![\w"'.])((?:mv|kv)_[a-z_]+)(?![\w"'])/_perl($1)/ge;
    $text =~ s/\A(\$group->(\w+): )\2: /$1/;
    return $text;
}

1;

__END__

=encoding utf8

=head1 NAME

Polyverso::Names - the library's functions in messages, under their Perl names; internal

=cut
