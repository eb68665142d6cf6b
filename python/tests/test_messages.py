"""Messages name Python's functions and objects, and say what to do instead."""

import numpy as np
import pytest

import polyverso
from polyverso import capi, distlearn, gossip, kvstore, names, optimizer
from polyverso.group import Group
from polyverso.optimizer import Updater

OBJECTS = {
    "node": polyverso.Node, "table": polyverso.Table, "tensor": polyverso.Tensor, "Tensor": polyverso.Tensor, "group": Group,
    "Group": Group, "request": polyverso.Request, "kv": kvstore.KVStore, "strategy": distlearn.AllReduceSGD, "updater": Updater,
    "polyverso": polyverso, "device": polyverso.Device, "kvstore": kvstore, "distlearn": distlearn,
}


def functions():
    return [name for name in dir(capi) if name.startswith(("mv_", "kv_")) and callable(getattr(capi, name))]


@pytest.mark.parametrize("name", functions())
def test_every_function_has_a_name_that_exists(name):
    spoken = names.of_function(name)
    if spoken == name or " " in spoken:
        return
    owner, member = spoken.removesuffix("()").split(".")
    holders = [gossip, gossip.Gossip] if owner == "gossip" else [OBJECTS.get(owner) or getattr(distlearn, owner)]
    found = [getattr(holder, member) for holder in holders if hasattr(holder, member)]
    assert found, spoken
    assert callable(found[0]) == spoken.endswith("()")


def test_other_words_stay():
    for text in ('there is no table "mv_table_add"', "mv_call_options", "mv_no_function() and kv_", 'key "kv_push"', "the dtype mv_dtype"):
        assert names.in_python(text) == text
    assert names.in_python("kv_pull: call kv_init() first, or mv_shutdown(0)") == "kv.pull(): call kv.init() first, or node.shutdown()"


def failure(call):
    with pytest.raises(polyverso.Error) as caught:
        call()
    assert "mv_" not in caught.value.text and "kv_" not in caught.value.text, caught.value.text
    return caught.value.text


def test_functions_are_pythons(node):
    table, kv, group = node.matrix(2, 2, name="w"), kvstore.create("local"), Group(node)
    for call, reason in (
        (lambda: node.array(-1), r"node.array(): option size = -1"),
        (lambda: node.matrix(2, -1), r"node.matrix(): option cols = -1"),
        (lambda: node.sparse(2, 2, updater="sdg"), r"node.sparse(): unknown updater"),
        (lambda: node.keyvalue(updater="sdg"), r"node.keyvalue(): unknown updater"),
        (lambda: kv.push("x", np.ones(2)), r"kv.push(): there is no key"),
        (lambda: kvstore.create("dst_sync"), r"kvstore.create(): there is no store"),
        (lambda: group.allreduce([1]), r"group.allreduce(): data is a list"),
        (lambda: Group(node, [3]), r"polyverso.Group(): 3 is not a worker"),
        (lambda: polyverso.init(timeout_ms=-7), r"polyverso.init()"),
        (lambda: gossip.Gossip({}, "a"), r"gossip.Gossip():"),
        (lambda: polyverso.Tensor.zeros(3) + polyverso.Tensor.zeros(4), r"tensor arithmetic: (3,) and (4,)"),
        (lambda: polyverso.Tensor.zeros(3).get(9), r"tensor.get():"),
    ):
        assert failure(call).startswith(reason)
    with pytest.raises(TypeError, match="updater is 3: text is needed"):
        table.set_updater(3)


def test_before_init_and_after_shutdown():
    assert "call polyverso.init() " in failure(lambda: kvstore.create("dist"))
    node = polyverso.init()
    table, closed, group = node.array(2, name="weights"), node.array(2, name="other"), Group(node)
    request, strategy = table.get_async(), distlearn.AllReduceSGD(group)
    closed.close()
    assert failure(closed.get) == 'table.get(): table "other" is closed'
    node.shutdown()
    assert failure(lambda: table.add([1, 2])) == 'table.add(): table "weights" is used after shutdown'
    assert failure(table.get) == 'table.get(): table "weights" is used after shutdown'
    assert failure(closed.get) == 'table.get(): table "other" is closed'
    assert failure(lambda: group.allreduce(np.ones(1))) == "group.allreduce(): this Group is used after shutdown"
    assert "AllReduceSGD is used after shutdown" in failure(lambda: strategy.sum_gradients([np.ones(2)]))
    assert "polyverso.init() again first" in failure(node.barrier)
    assert failure(lambda: node.rank).startswith("node.rank: ")
    with polyverso.init() as again:  # a number is never used twice
        other = again.array(2, name="weights")
        assert "after shutdown" in failure(table.get)
        assert other.get().tolist() == [0, 0]
    assert request.handle is None or failure(request.wait)


def test_what_is_closed_is_named(node):
    group = Group(node)
    group.close()
    assert failure(group.barrier) == "group.barrier(): this Group is closed"
    group.close()  # does nothing
    kv = kvstore.create("local")
    kv.close()
    assert failure(lambda: kv.push("w", np.ones(1))) == "kv.push(): this KVStore is closed"
    assert repr(kv) == "<polyverso.KVStore local, closed>"
    with gossip.Gossip({"nodes": [{"name": "w1", "host": "127.0.0.1", "port": 0}]}, "w1") as peer:
        pass
    assert failure(lambda: peer.publish([np.ones(1)], 1)) == "gossip.publish(): this Gossip is closed"


def test_representations(node):
    table, keyed, column = node.matrix(3, 2, name="weights"), node.keyvalue(4, "bf16", "k"), node.array(5, name='a"b')
    assert repr(node) == "<polyverso.Node worker 0 of 1, async, 3 tables>"
    assert repr(table) == '<polyverso.Table "weights", 3 x 2 f32>'
    assert repr(keyed) == '<polyverso.Table "k", keys x 4 bf16>'
    column.close()
    assert repr(column).endswith("5 f32, closed>")
    group, kv = Group(node), kvstore.create("local")
    assert repr(group) == f"<polyverso.Group rank 0 of 1, {group.info['transport']}>"
    assert repr(kv) == "<polyverso.KVStore local, rank 0 of 1>"
    strategy = distlearn.AllReduceSGD(group)
    assert repr(strategy) == "<polyverso.AllReduceSGD>"
    request = table.get_async()
    assert repr(request) in ("<polyverso.Request unfinished>", "<polyverso.Request finished>")
    request.wait()
    assert repr(request) == "<polyverso.Request finished>"
    peer = gossip.Gossip({"nodes": [{"name": "w1", "host": "127.0.0.1", "port": 0}]}, "w1")
    assert repr(peer) == "<polyverso.Gossip w1, 0 peers>"
    for one in (strategy, group, peer, kv):
        one.close()
        assert repr(one).endswith("closed>")
    assert repr(node) == "<polyverso.Node worker 0 of 1, async, 2 tables>"
    node.array(1)
    assert "3 tables" in repr(node)


def test_representations_after_shutdown():
    node = polyverso.init(sync=True)
    table, group = node.array(3, name="w"), Group(node)
    assert repr(node) == "<polyverso.Node worker 0 of 1, sync, 1 table>"
    node.shutdown()
    assert repr(node) == "<polyverso.Node after shutdown>"
    assert repr(table) == '<polyverso.Table "w", 3 f32, after shutdown>'
    assert repr(group).endswith("after shutdown>")


def test_lengths(node):
    assert node.array(3.0).shape == (3,) and node.array((4,)).shape == (4,) and node.array(np.int64(2)).shape == (2,)
    assert node.matrix(2.0, np.int32(3)).shape == (2, 3)
    for call, reason in (
        (lambda: node.array((3, 4)), r"node.array\(\(3, 4\)\): .* node.matrix\(3, 4\)"),
        (lambda: node.array(3.5), "size is 3.5: a whole number"),
        (lambda: node.array("3"), "size is '3'"),
        (lambda: node.matrix(2, None), "cols is None"),
        (lambda: node.matrix((2, 3), 1), r"rows is \(2, 3\)"),
    ):
        with pytest.raises(polyverso.ArgumentError, match=reason):
            call()


def test_missing_parameters(node):
    for call, reason in (
        (lambda: node.matrix((3, 4)), r"^MV_EINVAL: node.matrix\(\): cols must be given: write node.matrix\(3, 4\)$"),
        (lambda: node.sparse([3, 4], dtype="f64"), r"node.sparse\(\): cols must be given: write node.sparse\(3, 4\)$"),
        (lambda: node.matrix(3), r"cols must be given: write node.matrix\(rows, cols\)$"),
        (lambda: node.matrix(cols=3), r"rows must be given: write node.matrix\(rows, cols\)$"),
        (lambda: node.array(), r"node.array\(\): size must be given: write node.array\(size\)$"),
        (lambda: node.keyvalue((3, 4)), r"cols is \(3, 4\): a whole number is needed"),
    ):
        with pytest.raises(polyverso.ArgumentError, match=reason) as caught:
            call()
        assert caught.value.status == polyverso.capi.MV_EINVAL


def test_numbers_that_are_out_of_range(node):
    table = node.array(3)
    for wrong in (-5, -0.5, float("nan"), float("-inf")):
        for call in (table.get, node.barrier, Group(node).barrier, lambda timeout: node.poll(timeout=timeout)):
            with pytest.raises(polyverso.ArgumentError, match=f"timeout is {wrong}: a number of seconds is needed, 0 or more"):
                call(timeout=wrong)
    assert table.get(timeout=float("inf")).tolist() == table.get(timeout=-1).tolist() == [0] * 3
    for settings, reason in (
        ({"timeout_ms": -5}, "timeout_ms=-5 is not a valid timeout: use at least 1 ms, or -1 for none"),
        ({"timeout_ms": float("nan")}, "option timeout_ms = nan: a 64-bit integer is needed"),
        ({"sync": -1}, "option sync = -1 is out of range: 0 or more is needed"),
        ({"spin_us": -1}, "option spin_us = -1 is out of range: 0 or more is needed"),
        ({"inflight_bytes": -1}, "option inflight_bytes = -1 is out of range: 0 or more is needed"),
        ({"checkpoint_keep": -1}, "checkpoint_keep=-1 is less than 1"),
    ):
        with pytest.raises(polyverso.ArgumentError, match=reason):
            polyverso.open_node(**settings)
    for settings, reason in (
        ({"staleness": -1}, "option staleness = -1 is out of range: 0 or more is needed"),
        ({"staleness": float("nan")}, "option staleness = nan: a 64-bit integer is needed"),
        ({"capacity": -1}, "option capacity = -1 is out of range: 0 or more is needed"),
        ({"initial": float("nan")}, "initial=nan .*: expected finite numbers"),
        ({"initial_range": -1}, "initial_range=-1: expected finite numbers and a range of at least 0"),
    ):
        with pytest.raises(polyverso.ArgumentError, match=reason):
            node.keyvalue(3, **settings)


def test_a_table_that_is_not_there(node):
    node.array(3, name="weights")
    with pytest.raises(polyverso.NotFoundError, match=r'there is no table "wieghts"; did you mean "weights"\?$'):
        node.open("wieghts")
    with pytest.raises(polyverso.NotFoundError, match='there is no table "biases"$'):
        node.open("biases")


def test_misspelled_parameters(node):
    for call, reason in (
        (lambda: polyverso.init(synch=True), "init.. has no parameter 'synch': did you mean 'sync'"),
        (lambda: polyverso.open_node(log_levl="info"), "did you mean 'log_level'"),
        (lambda: polyverso.init(sink=True), "known: sync, role"),
        (lambda: node.array(3, updatr="add"), "array.. has no parameter 'updatr': did you mean 'updater'"),
        (lambda: node.sparse(3, 3, stalenes=1), "did you mean 'staleness'"),
    ):
        with pytest.raises(polyverso.ArgumentError, match=reason) as caught:
            call()
        assert isinstance(caught.value, TypeError)


def test_misspelled_names(node):
    for call, kind, reason in (
        (lambda: optimizer.create("Adma"), ValueError, r"unknown optimizer 'Adma': did you mean 'adam'\?; known: adadelta, "),
        (lambda: optimizer.create("zzz"), ValueError, "unknown optimizer 'zzz'; known: adadelta, "),
        (lambda: optimizer.Adam(learning_rat=1), TypeError, r"Adam has no parameter 'learning_rat': did you mean 'learning_rate'\?; known"),
        (lambda: optimizer.create("sgd", lr_schedule=None), TypeError, "did you mean 'lr_scheduler'"),
        (lambda: kvstore.create("local").set_optimizer("adam"), ValueError, 'unknown updater "adam".*did you mean "mx.adam"'),
        (lambda: kvstore.create("dist-sync"), ValueError, 'did you mean "dist_sync"'),
        (lambda: gossip.Gossip({"interpolaton": "clock"}, "a"), ValueError, 'did you mean "interpolation"'),
        (lambda: node.array(3, dtype="flaot32"), TypeError, "'flaot32': did you mean 'float32'"),
        (lambda: polyverso.array(3), AttributeError, r"a method of a node, as in node = polyverso.init\(\); node.array"),
        (lambda: distlearn.DiLoCo(Group(node), 10, fragment=2), ValueError, r'distlearn.DiLoCo\(\):.*did you mean "fragments"'),
    ):
        with pytest.raises(kind, match=reason):
            call()
    with pytest.raises(AttributeError) as caught:
        polyverso.inti
    assert (caught.value.name, caught.value.obj) == ("inti", polyverso)  # for Python's own "Did you mean"


def test_an_optimizer_is_an_updater(node):
    table = node.array(3, updater=optimizer.SGD(learning_rate=0.5))
    table.add(np.ones(3))
    assert table.get().tolist() == [-0.5] * 3
    table.set_updater(optimizer.create("sgd", learning_rate=0.25))
    table.add(np.ones(3))
    assert table.get().tolist() == [-0.75] * 3
    for call in (lambda: node.array(3, updater=0.1), lambda: table.set_updater(optimizer.SGD)):
        with pytest.raises(TypeError, match='text is needed, such as "sgd rate=0.1", or an optimizer'):
            call()
    with pytest.raises(TypeError, match="lr_scheduler is 0.5: a schedule of polyverso.lr_scheduler"):
        optimizer.create("sgd", lr_scheduler=0.5)


def test_what_was_not_found(node, tmp_path):
    kv = kvstore.create("local")
    for call in (
        lambda: node.load(tmp_path),
        lambda: node.open("none"),
        lambda: kv.push("none", np.ones(1)),
        lambda: polyverso.inspect_checkpoint(tmp_path / "none"),
    ):
        with pytest.raises(polyverso.NotFoundError) as caught:
            call()
        assert isinstance(caught.value, (polyverso.ArgumentError, LookupError)) and caught.value.name == "MV_ENOTFOUND"


def test_a_damaged_checkpoint_is_found(node, tmp_path):
    node.array(3, name="w")
    node.save(tmp_path)
    (part,) = tmp_path.glob("*/server-0.safetensors")
    part.write_bytes(part.read_bytes()[:-1])
    with pytest.raises(polyverso.ArgumentError, match="damaged") as caught:
        node.load(tmp_path)
    assert not isinstance(caught.value, polyverso.NotFoundError)


def test_objects_of_another_kind(node):
    group, kv, alone = Group(node), kvstore.create("local"), {"nodes": [{"name": "a", "host": "127.0.0.1", "port": 0}]}
    kv.init("w", np.ones(2))
    for call, kind, reason in (
        (lambda: Group(None), TypeError, r"a node is needed, as polyverso.init\(\) returns it, not NoneType"),
        (lambda: Group.of_host(group.members), TypeError, "a node is needed.*not list"),
        (lambda: distlearn.AllReduceSGD(node), TypeError, "a polyverso.Group is needed, not Node"),
        (lambda: group.allreduce(None), ValueError, "an array is needed, not None"),
        (lambda: group.allreduce([1.0, 2.0]), ValueError, "list, not a buffer.*take the results from that array"),
        (lambda: group.broadcast([np.ones(2), np.ones(1)]), ValueError, r"a list of arrays: allreduce_many\(\)"),
        (lambda: group.allreduce(np.ones((3, 3))[:, 1]), ValueError, "take the results from that copy"),
        (lambda: group.allreduce(np.broadcast_to(1.0, 3)), ValueError, r"read-only .* such as a copy by numpy.array\(\)"),
        (lambda: kv.pull("w"), ValueError, "no out given"),
        (lambda: kv.push("w", [1.0, 2.0]), TypeError, r"not float: make an array of the list, as by numpy.array\(\)"),
        (lambda: node.array(3).add(["1", "2", "3"]), ValueError, "the data is text"),
        (lambda: node.keyvalue().add([1, 1], keys=["the", "fox"]), ValueError, r"not text: hash words, but not by hash\(\)"),
        (lambda: node.keyvalue().get(keys=np.array(["the"], object)), ValueError, "not text"),
        (lambda: node.array(3).get(rows=np.array([True, False, True])), ValueError, r"numpy.flatnonzero\(mask\)"),
        (lambda: polyverso.Tensor.view([1.0]), TypeError, r"not list: Tensor.copy_of\(\) copies"),
        (lambda: gossip.ArrayAdapter(np.ones(2), "a", alone).update_send(None), TypeError, "loss is None: a number is needed"),
        (lambda: gossip.ArrayAdapter(np.ones(2), "a", alone).update_wait("low"), TypeError, "loss is 'low'"),
    ):
        with pytest.raises(kind, match=reason):
            call()


def test_adapters_show_their_node():
    with gossip.ArrayAdapter(np.ones(2), "w1", {"nodes": [{"name": "w1", "host": "127.0.0.1", "port": 0}]}) as adapter:
        adapter.update_send(0.5)
        assert str(adapter) == str(adapter.gossip) and "w1" in str(adapter)
        assert repr(adapter) == "<polyverso.ArrayAdapter w1, 0 peers>"


def test_closing_twice(node):
    table, group = node.array(3), Group(node)
    for one in (table, distlearn.AllReduceSGD(group), group, kvstore.create("local")):
        one.close()
        one.close()


def test_a_codec_needs_a_type():
    kv = kvstore.create("local")
    with pytest.raises(polyverso.ArgumentError, match=r"has no type.*\{'type': '2bit', 'threshold': 1\}"):
        kv.set_gradient_compression({"threshold": 1})
    for wrong in (None, 3, ["2bit"]):
        with pytest.raises(TypeError, match="a dict or text"):
            kv.set_gradient_compression(wrong)
    kv.set_gradient_compression({"type": "none"})


@pytest.mark.parametrize("data", ["abc", {"a": 1}, (number for number in range(3)), lambda: 1, object(), ["a", "b", "c"], [[1], {}, 3]])
def test_what_is_no_number(node, data):
    table = node.array(3)
    for call in (table.add, table.set, lambda given: node.array(3, init=given)):
        with pytest.raises(polyverso.ArgumentError):
            call(data)
    assert not table.get().any()


def test_wrong_types(node):
    for call, reason in (
        (lambda: node.array(3).get(timeout="5"), "timeout is '5': a number of seconds"),
        (lambda: node.array(3, dtype="f31"), "'f31'"),
        (lambda: node.open(3), r"node.open\(\): text is needed, not int"),
        (lambda: kvstore.create("local").set_optimizer(None), "an optimizer is .* not NoneType"),
    ):
        with pytest.raises(TypeError, match=reason):
            call()


def test_settings_of_other_types():
    with polyverso.init(metrics=0, log_level="error", timeout_ms=5000):
        pass


def test_texts_that_are_cut_are_utf8(node):
    assert "contains a zero byte" in failure(lambda: node.open("x" + "é" * 200 + "\0"))
