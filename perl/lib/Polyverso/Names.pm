package Polyverso::Names;

# The names of C functions in messages, as Perl has them: "mv_table_add" is "$table->add".

use strict;
use warnings;

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
    mv_group_describe  => '$group->info',
    mv_reduce          => '$group->reduce',
    mv_reduce_scatter  => '$group->reduce_scatter',
    mv_broadcast       => '$group->broadcast',
    mv_broadcast_many  => '$group->broadcast_many',
    mv_allgather       => '$group->allgather',
    mv_alltoall_counts => '$group->alltoall',
    (map { ("mv_$_" => "\$group->$_") } qw(gather scatter alltoall send recv)),
    mv_allreduce_drain => '$group->drain',
    mv_gossip_open      => 'Polyverso::Gossip->open',
    mv_gossip_open_text => 'Polyverso::Gossip->open',
    mv_gossip_add       => '$gossip->publish',
    mv_tensor_create    => 'Polyverso::Tensor->zeros',
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

# A message with Perl's names. A reduction's own name after the function's says nothing new.
sub in_perl {
    my ($text) = @_;
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
