package AI::MXNet::KVStore;

# A Polyverso::KVStore with AI::MXNet's interface. Keys are strings: 3 is '3'.

use Mouse;

use AI::MXNet::Base ();
use AI::MXNet::NDArray;
use AI::MXNet::NS;
use AI::MXNet::Optimizer;
use Polyverso;
use Polyverso::KVStore;
use Polyverso::Values ();
use Scalar::Util qw(blessed);

has store    => (is => 'ro', required => 1);    # a Polyverso::KVStore; undef in a process that is only a server
has _type    => (is => 'ro');
has _updater => (is => 'rw');                   # a function that this process calls with pushed values
has _native  => (is => 'rw');                   # an AI::MXNet::Optimizer that the library executes
has _keys    => (is => 'ro', default => sub { +{} });
has _settings => (is => 'rw');                  # its parameters, as last passed to the library
has _factors => (is => 'rw');                   # all of its multipliers at that time, as text
has _told    => (is => 'ro', default => sub { +{} });    # keys whose multipliers were set
has _pulls   => (is => 'ro', default => sub { [] });    # requests that may be unfinished

*_refuse = \&AI::MXNet::Base::refuse;

# ------------------------------------------------------------------ creation and shutdown

my $node;

# The node of the dist stores. It is opened for the first of them, and ends with the program: a program that dies leaves
# as lost, so that the other members detect that at once.
sub node { return $node //= Polyverso->init }

sub create {
    my ($class, @given) = @_;
    my $name = @given % 2 ? shift @given : 'local';
    $name //= 'local';
    my %how = @given;
    my ($unknown) = grep { $_ ne 'reject_nonfinite' } sort keys %how;
    _refuse(EINVAL => "create has no option '$unknown'; known: reject_nonfinite") if defined $unknown;
    my $self = $class->_create($name);
    $self->set_reject_nonfinite($how{reject_nonfinite}) if exists $how{reject_nonfinite} && $self->store;
    return $self;
}

sub _create {
    my ($class, $name) = @_;
    return $class->new(store => Polyverso::KVStore->create($name)) unless $name =~ /\A(?:dist|p3)/i;
    my $place = node();
    return $class->new(store => undef, _type => lc $name) if $place->worker_id < 0;
    return $class->new(store => Polyverso::KVStore->create($name, $place));
}

sub _store {
    my ($self) = @_;
    return $self->store // _refuse(ESTATE => 'this process is only a server: call AI::MXNet::KVStoreServer->new(kvstore => ...)->run');
}

sub handle      { my ($self) = @_; return $self->_store->handle }
sub type        { my ($self) = @_; return $self->store ? $self->store->type : $self->_type }
sub rank        { my ($self) = @_; return $self->store ? $self->store->rank : node()->server_id }
sub num_workers { my ($self) = @_; return $self->store ? $self->store->num_workers : node()->num_workers }
sub _is_dist    { my ($self) = @_; return $self->type =~ /\A(?:dist|p3)/ ? 1 : 0 }

# ------------------------------------------------------------------ values

# The tensors of arrays, or of nested lists of arrays. Access to a tensor waits for unfinished pulls into it.
sub _tensors {
    my ($what, $value) = @_;
    # Fast path for thousands of keys: no method call for an array without unfinished pulls.
    return [map { ref $_ eq 'AI::MXNet::NDArray' && !$_->{_memory}{pulls} ? $_->{_tensor} : _tensors($what, $_) } @$value]
        if ref $value eq 'ARRAY';
    if (blessed $value && $value->isa('AI::MXNet::NDArray::Slice')) {
        _refuse(EDTYPE => "$what is $value, a box whose elements are not together: pull into an array, and assign that to the box") if $what eq 'out';
        $value = $value->sever;
    }
    _refuse(EDTYPE => "$what holds " . (defined $value ? "'$value'" : 'undef') . ", not an array")
        unless blessed $value && $value->isa('AI::MXNet::NDArray');
    return $value->tensor;
}

sub _arrays { my ($value) = @_; return ref $value eq 'ARRAY' ? map { _arrays($_) } @$value : $value }

my %OPTIONS = (push => [qw(priority)], pull => [qw(out priority ignore_sparse)], row_sparse_pull => [qw(out priority row_ids)]);

sub _options {
    my ($method, @given) = @_;
    @given = map { ref $_ eq 'HASH' ? %$_ : $_ } @given;
    _refuse(EINVAL => "$method: an option without a value: @given") if @given % 2;
    my %given = @given;
    my %known = map { $_ => 1 } @{ $OPTIONS{$method} };
    my ($unknown) = grep { !$known{$_} } sort keys %given;
    _refuse(EINVAL => "$method has no option '$unknown'; known: @{ $OPTIONS{$method} }") if defined $unknown;
    for my $needed (grep { $known{$_} } qw(out row_ids)) {
        _refuse(EINVAL => "$method needs $needed => ") unless defined $given{$needed};
    }
    return %given;
}

# Records an unfinished pull in its arrays, which wait for it when they are read. A pull from a store of this process
# has no request: it is complete when it returns.
sub _pulling {
    my ($self, $out, $request) = @_;
    return unless $request;
    $_->_pulled_by($request) for _arrays($out);
    @{ $self->_pulls } = ((grep { !$_->done } @{ $self->_pulls }), $request);
    return;
}

# ------------------------------------------------------------------ init, push, pull

sub init {
    my ($self, $key, $value) = @_;
    $self->_store->init($key, _tensors(value => $value));
    my @keys = ref $key ? @$key : $key;
    @{ $self->_keys }{@keys} = (1) x @keys;
    $self->_tell_factors(@keys) if $self->_native;
    return;
}

sub push {
    my ($self, $key, $value, @given) = @_;
    my %options = _options('push', @given);
    my $followed = $self->_native && !$self->_is_dist ? $self->_follow : undef;
    $self->_store->push($key, _tensors(value => $value), %options);
    if ($followed) { $followed->_update_count($_) for ref $key ? @$key : $key }
    return;
}

sub pull {
    my ($self, $key, @given) = @_;
    my %options = _options(pull => @given);
    my $out = delete $options{out};
    my $sparse_too = !(delete $options{ignore_sparse} // 1);
    my $request = $self->_store->pull($key, _tensors(out => $out), %options, sparse_too => $sparse_too,
        async => $self->_is_dist);
    return $self->_pulling($out, $request);
}

sub row_sparse_pull {
    my ($self, $key, @given) = @_;
    my %options = _options(row_sparse_pull => @given);
    my ($out, $ids) = delete @options{qw(out row_ids)};
    my @tensors = (_tensors(out => $out), _tensors(row_ids => $ids));
    return $self->_pulling($out, $self->_store->row_sparse_pull($key, @tensors, %options, async => $self->_is_dist));
}

sub pushpull {
    my ($self, $key, $value, %options) = @_;
    my $out = delete $options{out} // $value;
    $self->push($key, $value, %options);
    return $self->pull($key, out => $out, %options);
}

sub broadcast {
    my ($self, $key, $value, %options) = @_;
    $self->init($key, $value);
    return $self->pull($key, out => $options{out} // $value);
}

# ------------------------------------------------------------------ optimizers and updaters

# The library executes MXNet's optimizers, in this process and on servers. An optimizer of a class of the program's own
# runs as an updater in this process.
sub set_optimizer {
    my ($self, $optimizer) = @_;
    _refuse(EDTYPE => 'set_optimizer needs an AI::MXNet::Optimizer') unless blessed $optimizer && $optimizer->isa('AI::MXNet::Optimizer');
    my $text = $optimizer->text;
    if (!defined $text) {
        _refuse(ENOSYS => ref($optimizer) . ' and its schedule must both be MXNet\'s: servers support no others') if $self->_is_dist;
        return $self->_set_updater($optimizer->get_updater);
    }
    $self->_store->set_optimizer($text);
    $self->_updater(undef);
    $self->_native($optimizer);
    $self->_settings($optimizer->_settings);
    $self->_tell_factors(keys %{ $self->_keys });
    return;
}

# Synchronizes a store of this process with the optimizer object before a push: passes on parameters that changed since
# the last push, and keeps the states. Returns the object, which counts the updates as the library does, or undef if this
# process now executes it.
sub _follow {
    my ($self) = @_;
    my $optimizer = $self->_native;
    my $settings = $optimizer->_settings;
    if ($settings ne $self->_settings) {
        my $text = $optimizer->text;
        if (!defined $text) {
            $self->set_optimizer($optimizer);
            return undef;
        }
        $self->_store->set_optimizer($text);
        $self->_settings($settings);
    }
    $self->_tell_factors(keys %{ $self->_keys }) if $self->_factors ne _all_factors($optimizer);
    return $optimizer;
}

sub _all_factors {
    my ($optimizer) = @_;
    my ($objects, @mults) = map { $optimizer->$_ } qw(param_dict lr_mult wd_mult);
    return join ' ', map({ my $mult = $_; map { "$_=$mult->{$_}" } sort keys %$mult } @mults),
        map { my $object = $objects->{$_}; map { $object->$_ } qw(lr_mult wd_mult) } sort keys %$objects;
}

# Sets the multipliers of rate and decay of keys that have any, or had.
sub _tell_factors {
    my ($self, @keys) = @_;
    my ($optimizer, $told) = ($self->_native, $self->_told);
    $self->_factors(_all_factors($optimizer));
    for my $key (@keys) {
        my ($rate, $decay) = map { Polyverso::Values::exact($optimizer->_factor($_ => $key)) } qw(lr_mult wd_mult);
        next if $rate == 1 && $decay == 1 && !$told->{$key};
        $self->_store->set_key_parameters($key, "lr_mult=$rate wd_mult=$decay");
        $told->{$key} = 1;
    }
    return;
}

sub _set_updater {
    my ($self, $updater) = @_;
    Polyverso::KVStore::_check_code('$kv->_set_updater', $updater);
    $self->_store->set_updater($updater && sub {
        my ($key, @tensors) = @_;
        $updater->($key, map { AI::MXNet::NDArray->_wrap($_, ctx => AI::MXNet::Context->_of_place($_->info->{device})) } @tensors);
        return;    # MXNet ignores the result
    });
    $self->_updater($updater);
    $self->_native(undef) if $updater;
    return;
}

sub save_optimizer_states {
    my ($self, $path, %how) = @_;
    my $updater = $self->_updater;
    return $self->_store->save_optimizer_states($path, %how) unless $updater;
    _refuse(ESTATE => 'the updater is a function: it has no states to save') unless _keeps_states($updater);
    return AI::MXNet::NDArray::File::write_whole($path, $updater->get_states($how{dump_optimizer}));
}

sub load_optimizer_states {
    my ($self, $path) = @_;
    my $updater = $self->_updater;
    return $self->_store->load_optimizer_states($path) unless $updater;
    _refuse(ESTATE => 'the updater is a function: it has no states to load') unless _keeps_states($updater);
    return $updater->set_states(AI::MXNet::NDArray::File::read_whole($path), $path);
}

sub _keeps_states { my ($updater) = @_; return blessed $updater && $updater->can('get_states') }

sub set_gradient_compression {
    my ($self, $parameters) = @_;
    _refuse(EINVAL => "set_gradient_compression needs a hash: { type => '2bit', threshold => 0.5 }")
        unless ref $parameters eq 'HASH' && defined $parameters->{type};
    return $self->_store->set_gradient_compression($parameters);
}

sub set_reject_nonfinite { my ($self, $on) = @_; return $self->_store->set_reject_nonfinite($on // 1) }

# ------------------------------------------------------------------ workers and servers

sub _barrier { my ($self) = @_; return $self->_store->barrier }
sub _leave   { my ($self) = @_; return $self->_store->leave }

sub _send_command_to_servers { my ($self, $head, $body) = @_; return $self->_store->send_command($head, $body) }

__PACKAGE__->meta->make_immutable;

1;

__END__

=encoding utf8

=head1 NAME

AI::MXNet::KVStore - tensors under keys, shared by workers

=head1 SYNOPSIS

    use AI::MXNet qw(mx);

    my $shape = [2, 3];
    my $kv = mx->kv->create('local');
    $kv->init(3, mx->nd->ones($shape) * 2);
    my $a = mx->nd->zeros($shape);
    $kv->pull(3, out => $a);
    print $a->aspdl;                                                     # twos

    $kv->push(3, [map { mx->nd->ones($shape, ctx => mx->cpu($_)) } 0 .. 3]);    # four devices: their sum
    $kv->pull(3, out => $a);
    print $a->aspdl;                                                     # fours

    $kv->_set_updater(sub { my ($key, $input, $stored) = @_; print "update on key: $key\n"; $stored += $input * 2 });
    $kv->push(3, mx->nd->ones($shape));                                  # update on key: 3
    $kv->pull(3, out => $a);
    print $a->aspdl;                                                     # sixes

    $kv = mx->kv->create('local');
    $kv->init('w', mx->nd->ones($shape)->tostype('row_sparse'));
    $kv->set_optimizer(mx->optimizer->create('adam', learning_rate => 0.1));
    $kv->push('w', mx->nd->sparse->row_sparse_array([[[1, 1, 1]], [1]], shape => $shape));
    my $rows = mx->nd->sparse->zeros('row_sparse', $shape);
    $kv->row_sparse_pull('w', out => $rows, row_ids => mx->nd->array([1]));
    print $rows->data->aspdl;                                            # one row

=head1 DESCRIPTION

AI::MXNet's interface to L<Polyverso::KVStore>, with the same types, guarantees and errors: F<docs/kvstore.md>. Keys are
strings, one or an array of them. Values are arrays; for several devices, arrays of arrays. Options are pairs or a hash.

A C<dist> store joins the cluster that the environment describes (C<Polyverso-E<gt>init>), and leaves it when the
program ends successfully. In a process that is only a server it has only C<type>, C<rank> and C<num_workers>, and
L<AI::MXNet::KVStoreServer> runs it.

=head1 METHODS

=head2 create($type, reject_nonfinite => 0)

The default type is C<local>.

=head2 init($key, $value), push($key, $value, priority => 0), pull($key, out => , priority => 0, ignore_sparse => 1)

A C<pull> from a C<dist> store may return before the values have arrived. Reading the arrays waits for them, and throws
an error of the pull.

=head2 row_sparse_pull($key, out => , row_ids => , priority => 0)

Ids are of any dtype and shape, repeats allowed; one array of ids for all outputs, or one for each.

=head2 pushpull($key, $value, out => ), broadcast($key, $value, out => )

C<push> or C<init>, then C<pull> into C<out>, or into C<$value> without it.

=head2 set_optimizer($optimizer)

One of MXNet's optimizers is sent to the servers as text, with its schedule and multipliers. One of another class works
only in local stores, and runs in this process. A local store follows the object: a changed rate, C<rescale_grad> or
multiplier takes effect with the next push and keeps the states, and the object counts the updates. For C<dist> stores,
call C<set_optimizer> again after a change.

=head2 _set_updater($code)

C<< $code->($key, $merged, $stored) >> changes C<$stored> in place. For local stores; it is called inside C<push>. An
array that it keeps becomes a copy when it returns.

=head2 node

A function: the L<Polyverso::Node> of all stores, which joins the cluster when it is first needed.

=head2 set_gradient_compression({ type => '2bit', threshold => 0.5 })

Compresses the pushes from now on; F<docs/kvstore.md> lists the codecs. The worker keeps what was not sent for its next push.

=head2 set_reject_nonfinite($on)

Keys that are initialised from now on refuse NaN and infinity, unless C<$on> is 0. In stores of C<dist> types all
workers make the same call.

=head2 save_optimizer_states($path, dump_optimizer => 0), load_optimizer_states($path)

The states of all servers, in one file.

=head2 type, rank, num_workers, handle, store

The store's type, this worker's number from 0, the number of workers, the C<kv_store> for the C functions, and the
L<Polyverso::KVStore> below.

=head2 _barrier, _leave, _send_command_to_servers($head, $body)

C<_barrier> returns when all workers have called it. After C<_leave> the rounds of the others go on without this
worker. C<_send_command_to_servers> sends a number and a text to the controllers of all servers, and returns when they
have executed it.

=cut
