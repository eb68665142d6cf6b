package AI::MXNet::Updater;

# An optimizer with its states, by index. A store, or the program itself, calls it with (index, gradient, weight).

use Mouse;

use AI::MXNet::Base ();
use AI::MXNet::NDArray;
use AI::MXNet::NDArray::File ();
use JSON::PP ();
use Polyverso::Values ();
use Scalar::Util qw(blessed looks_like_number);

has optimizer     => (is => 'rw', isa => 'AI::MXNet::Optimizer', required => 1);
has states        => (is => 'rw', isa => 'HashRef', default => sub { +{} });
has states_synced => (is => 'rw', isa => 'HashRef', default => sub { +{} });

use overload '&{}' => sub { my ($self) = @_; return sub { $self->call(@_) } }, bool => sub { 1 }, fallback => 1;

sub _refuse { goto &AI::MXNet::Base::refuse }

sub call {
    my ($self, $index, $grad, $weight) = @_;
    my ($states, $synced) = ($self->states, $self->states_synced);
    if    (!exists $states->{$index}) { $states->{$index} = $self->optimizer->create_state($index, $weight) }
    elsif (!$synced->{$index})        { $states->{$index} = _moved($states->{$index}, $weight->context) }
    $synced->{$index} = 1;
    return $self->optimizer->update($index, $weight, $grad, $states->{$index});
}

*slice = \&call;    # PDL::NiceSlice rewrites $updater->(...) to a call of slice

sub _moved {
    my ($state, $context) = @_;
    return [map { _moved($_, $context) } @$state] if ref $state eq 'ARRAY';
    return {map { $_ => _moved($state->{$_}, $context) } keys %$state} if ref $state eq 'HASH';
    return blessed $state && $state->can('as_in_context') ? $state->as_in_context($context) : $state;
}

# ------------------------------------------------------------------ states as bytes

# kv_encode_states() makes a safetensors file of the arrays and a description in JSON, which maps indexes to states, and
# holds the counts.

my $json = JSON::PP->new->canonical->allow_nonref;
use constant FORMAT => 'polyverso-updater-1';

# Describes a state as data for JSON, with arrays as {"array": n}; appends these arrays to @$arrays.
sub _described {
    my ($state, $arrays) = @_;
    return Polyverso::Values::exact($state) unless ref $state;
    return [map { _described($_, $arrays) } @$state] if ref $state eq 'ARRAY';
    if (ref $state eq 'HASH') {
        return { hash => { map { $_ => _described($state->{$_}, $arrays) } keys %$state } };
    }
    _refuse(EINVAL => "a state with $state can't be saved: only arrays, numbers, text, and lists or hashes of them can")
        unless blessed $state && $state->isa('AI::MXNet::NDArray');
    push @$arrays, $state;
    return { array => $#$arrays, stype => $state->stype };
}

sub _made {
    my ($described, $arrays) = @_;
    return $described unless ref $described;
    return [map { _made($_, $arrays) } @$described] if ref $described eq 'ARRAY';
    if (my $hash = $described->{hash}) {
        return { map { $_ => _made($hash->{$_}, $arrays) } keys %$hash };
    }
    my $number = $described->{array} // '';
    my $array  = $number =~ /\A[0-9]+\z/ ? $arrays->[$number] : undef;
    _refuse(EINVAL => 'the states are damaged: they refer to a missing array') unless $array;
    return $array->tostype($described->{stype} // 'default');
}

sub get_states {
    my ($self, $dump_optimizer) = @_;
    my $optimizer = $self->optimizer;
    my @arrays;
    my %about = (
        class  => ref $optimizer,
        states => { map { $_ => _described($self->states->{$_}, \@arrays) } keys %{ $self->states } },
        counts => { num_update => $optimizer->num_update, index => $optimizer->_index_update_count },
    );
    if ($optimizer->can('_shared') && $optimizer->_shared) {
        $about{shared} = _described(AI::MXNet::NDArray->_wrap($optimizer->_shared), \@arrays);
    }
    $about{optimizer} = _parameters($optimizer) if $dump_optimizer;
    my @tensors = map { $_->tostype('default')->tensor } @arrays;
    my $bytes   = Polyverso::CAPI::kv_encode_states(FORMAT, $json->encode(\%about), \@tensors);
    return AI::MXNet::NDArray::File::_bytes(Polyverso::Tensor->_new($bytes));
}

# The attributes that are numbers, text, or arrays or hashes of them; a schedule as its class and attributes.
sub _parameters {
    my ($object) = @_;
    my %parameters;
    for my $attribute ($object->meta->get_all_attributes) {
        my $name = $attribute->name;
        next if $name =~ /\A(?:_|num_update\z|idx2name\z|param_dict\z)/ || !defined $attribute->init_arg;
        my $value = $object->{$name};
        next unless defined $value;
        if (blessed $value && $value->isa('AI::MXNet::LRScheduler')) {
            $parameters{$name} = { class => ref $value, %{ _parameters($value) }, warmup_final_lr => Polyverso::Values::exact($value->warmup_final_lr) };
            next;
        }
        my @parts = ref $value eq 'HASH' ? values %$value : ref $value eq 'ARRAY' ? @$value : $value;
        next if grep { ref } @parts;
        $parameters{$name} = ref $value eq 'HASH' ? { map { $_ => Polyverso::Values::exact($value->{$_}) } keys %$value }
            : ref $value ? [map { Polyverso::Values::exact($_) } @$value] : Polyverso::Values::exact($value);
    }
    return \%parameters;
}

# Makes an optimizer, or a schedule, of a class that is loaded in this process. A schedule's base_lr falls from step to
# step; new() takes the one that it began with. An optimizer's new() would make it the learning_rate.
sub _of_parameters {
    my ($class, $parameters, $kind) = @_;
    _refuse(EINVAL => 'the states are damaged: the class or its parameters are missing')
        if !defined $class || ref $class || ref $parameters ne 'HASH';
    _refuse(EINVAL => "the states need the class $class, but no $kind of this name is loaded") unless eval { $class->isa($kind) };
    my %given = %$parameters;
    my ($rate, $first) = ($given{base_lr}, delete $given{warmup_final_lr});    # of a schedule; early files have no $first
    $given{base_lr} = $first if defined $first;
    if (my $schedule = $given{lr_scheduler}) {
        _refuse(EINVAL => 'the states are damaged: the schedule is invalid') if ref $schedule ne 'HASH';
        my %own = %$schedule;
        $given{lr_scheduler} = _of_parameters(delete $own{class}, \%own, 'AI::MXNet::LRScheduler');
        $rate = $given{lr_scheduler}->base_lr;
    }
    my $made = $class->new(%given);
    if    ($given{lr_scheduler}) { $made->lr_scheduler->base_lr($rate) }
    elsif (defined $first)       { $made->base_lr($rate) }
    return $made;
}

# Reads all of the states before it changes anything. $where is the file, for messages.
sub set_states {
    my ($self, $bytes, $where) = @_;
    my $read = eval { local $SIG{__DIE__}; $self->_read_states($bytes) };
    if (!$read) {
        my $error = $@;
        my ($status, $text) = blessed $error && $error->isa('Polyverso::Error') ? ($error->name =~ s/\AMV_//r, $error->text)
            : (EINVAL => 'the states are damaged: ' . ($error =~ s/ at \S+ line \d+\.?\s*\z//r));
        _refuse($status => defined $where ? "$where: $text" : $text);
    }
    my $optimizer = $read->{optimizer};
    $self->optimizer($optimizer);
    $optimizer->_index_update_count($read->{counts});
    $optimizer->num_update($read->{num_update});
    $optimizer->_shared($read->{shared}) if $read->{shared};
    $self->states($read->{states});
    $self->states_synced({});
    return;
}

sub _read_states {
    my ($self, $bytes) = @_;
    my ($text, $handles) = Polyverso::CAPI::kv_decode_states(FORMAT, $bytes);
    my @arrays = map { AI::MXNet::NDArray->_wrap(Polyverso::Tensor->_new($_)) } @$handles;
    my $about  = $json->decode($text);
    _refuse(EINVAL => 'the states are damaged: the description is not a hash') unless ref $about eq 'HASH';
    my ($wanted, $class) = ($about->{class}, ref $self->optimizer);
    # In early files, each of these is JSON text.
    my ($states, $counts, $shared, $parameters)
        = map { defined($_) && !ref($_) ? $json->decode($_) : $_ } @$about{qw(states counts shared optimizer)};
    _refuse(EDISAGREE => 'the states belong to ' . ($wanted // 'no class') . ", but the optimizer is $class")
        if ($wanted // '') ne $class && !defined $parameters;
    my $index = ref $counts eq 'HASH' ? $counts->{index} : undef;
    my $sound = ref $states eq 'HASH' && ref $index eq 'HASH'
        && !grep { !looks_like_number($_) || $_ < 0 } $counts->{num_update} // 'none', values %$index;
    _refuse(EINVAL => 'the states are damaged: the states or the counts are missing') unless $sound;
    my %read = (counts => $index, num_update => $counts->{num_update});
    $read{states} = { map { $_ => _made($states->{$_}, \@arrays) } keys %$states };
    $read{shared} = _made($shared, \@arrays)->tensor if defined $shared;
    $read{optimizer} = defined $parameters ? _of_parameters($wanted, $parameters, 'AI::MXNet::Optimizer') : $self->optimizer;
    return \%read;
}

__PACKAGE__->meta->make_immutable;

1;

__END__

=encoding utf8

=head1 NAME

AI::MXNet::Updater - an optimizer with the states of its tensors

=head1 SYNOPSIS

    use AI::MXNet qw(mx);

    my ($weight, $gradient) = (mx->nd->ones([3]), mx->nd->ones([3]));
    my $updater = mx->optimizer->get_updater(mx->optimizer->create('adam'));
    $updater->('w', $gradient, $weight) for 1 .. 10;
    my $bytes = $updater->get_states(1);                       # with the optimizer's parameters

    my $other = mx->optimizer->get_updater(mx->optimizer->create('sgd'));
    $other->set_states($bytes);
    $other->('w', $gradient, $weight);                         # the eleventh step
    print ref $other->optimizer, ' ', $other->optimizer->num_update, "\n";    # AI::MXNet::Adam 11

=head1 METHODS

=head2 call($index, $gradient, $weight), $updater->($index, $gradient, $weight)

Updates the weight. The first call with an index makes its state.

=head2 get_states($dump_optimizer), set_states($bytes)

States and counts as the bytes of a safetensors file; with C<$dump_optimizer> also the class and parameters of the
optimizer and of its schedule. C<set_states> rejects states of another optimizer, damaged ones (there is a checksum),
and data written by Storable or Python's pickle, and then changes nothing.

=head2 optimizer, states

The optimizer, and a reference to a hash of the states by index.

=cut
