"""Messages of the library in Python's words: the names of Python's functions for those of C, and of objects for handles."""

from __future__ import annotations

import difflib
import functools
import inspect
import re
from typing import Any, Callable, Iterable, List, Match, Sequence, TypeVar

from . import capi, handles

# The object of the functions with a prefix, the longest prefix first.
_OBJECTS = {
    "mv_async_ea_": "AsyncEA.",
    "mv_ea_": "AllReduceEA.",
    "mv_sgd_": "AllReduceSGD.",
    "mv_local_sgd_": "LocalSGD.",
    "mv_compressed_": "CompressedAllReduce.",
    "mv_device_": "device.",
    "mv_gossip_": "gossip.",
    "mv_group_": "group.",
    "mv_request_": "request.",
    "mv_strategy_": "strategy.",
    "mv_table_": "table.",
    "mv_tensor_": "tensor.",
    "mv_": "node.",
    "kv_": "kv.",
}
_OF_GROUPS = ("mv_allreduce", "mv_allgather", "mv_alltoall", "mv_broadcast", "mv_gather", "mv_recv", "mv_reduce", "mv_scatter", "mv_send")
# Functions that the rule would give a wrong name.
_NAMES = {
    "mv_allreduce_drain": "group.drain",
    "mv_alltoall_counts": "group.alltoall",
    "mv_async_ea_open": "distlearn.AsyncEA",
    "mv_async_ea_average": "AsyncEA.average_parameters",
    "mv_async_ea_read": "AsyncEA.read_center",
    "mv_checkpoint_inspect": "polyverso.inspect_checkpoint",
    "mv_checkpoint_load": "node.load",
    "mv_checkpoint_save": "node.save",
    "mv_cluster_drain": "node.drain",
    "mv_cluster_resize": "node.resize",
    "mv_device_current_stream": "device.stream",
    "mv_device_describe": "device.info",
    "mv_device_find": "polyverso.Device",
    "mv_membership_next": "node.next_event",
    "mv_compressed_average": "CompressedAllReduce.average_gradients",
    "mv_compressed_open": "distlearn.CompressedAllReduce",
    "mv_custom_begin": "group.allreduce_custom",
    "mv_custom_done": "group.allreduce_custom",
    "mv_custom_end": "group.allreduce_custom",
    "mv_custom_next": "group.allreduce_custom",
    "mv_doctor_text": "polyverso.doctor",
    "mv_ea_average": "AllReduceEA.average_parameters",
    "mv_ea_open": "distlearn.AllReduceEA",
    "mv_gossip_add": "gossip.publish",
    "mv_gossip_add_shaped": "gossip.publish",
    "mv_gossip_open": "gossip.Gossip",
    "mv_gossip_open_text": "gossip.Gossip",
    "mv_gossip_set_clock": "gossip.clock",
    "mv_gossip_status_text": "gossip.status",
    "mv_group_describe": "group.info",
    "mv_group_open": "polyverso.Group",
    "mv_group_open_host": "Group.of_host",
    "mv_group_join": "Group.join",
    "mv_init": "polyverso.init",
    "mv_init_args": "polyverso.init",
    "mv_init_text": "polyverso.init",
    "mv_local_sgd_open": "distlearn.LocalSGD",
    "mv_local_sgd_synchronize": "LocalSGD.synchronize_parameters",
    "mv_node_open": "polyverso.open_node",
    "mv_request_error": "request.done",
    "mv_request_test": "request.done",
    "mv_sgd_open": "distlearn.AllReduceSGD",
    "mv_sgd_sum_and_normalize": "AllReduceSGD.sum_and_normalize_gradients",
    "mv_sgd_synchronize": "AllReduceSGD.synchronize_parameters",
    "mv_strategy_meter": "strategy.meter",
    "mv_table_create": "node.array",
    "mv_table_create_text": "node.array",
    "mv_table_describe": "table.info",
    "mv_table_list": "node.tables",
    "mv_table_open": "node.open",
    "mv_tensor_binary": "tensor arithmetic",
    "mv_tensor_create": "Tensor.zeros",
    "mv_tensor_create_on": "Tensor.zeros",
    "mv_tensor_describe": "tensor.info",
    "mv_tensor_from": "Tensor.copy_of",
    "mv_tensor_normal": "Tensor.normal",
    "mv_tensor_range": "Tensor.range",
    "mv_tensor_reduce": "tensor reduction",
    "mv_tensor_scalar": "tensor arithmetic",
    "mv_tensor_sparse": "Tensor.sparse",
    "mv_tensor_unary": "tensor arithmetic",
    "mv_tensor_uniform": "Tensor.uniform",
    "mv_tensor_view": "Tensor.view",
    "mv_tensor_view_on": "Tensor.view",
    "kv_create": "kvstore.create",
    "kv_encode_states": "updater.get_states",
    "kv_decode_states": "updater.set_states",
    "kv_next_command": "kvstore.run_commands",
    "kv_next_update": "kv.update",
    "kv_set_controller": "kvstore.set_controller",
    "kv_update_done": "kv.update",
}
# What is no function in Python.
_PLAIN = set(
    "node.rank node.size node.worker_id node.num_workers node.active_workers node.server_id node.num_servers node.is_master "
    "node.is_sync node.event_fd device.stream group.info group.members gossip.state gossip.metrics gossip.clock strategy.meter kv.type kv.rank "
    "kv.num_workers".split()
)
# Only polyverso.capi has these.
_ONLY_IN_C = set(
    "mv_callback_error mv_cluster_log_text mv_cluster_resize_at mv_cluster_status_text mv_last_error mv_log_level_set mv_request_release mv_status_family "
    "mv_status_message mv_status_name mv_strategy_cancel mv_tensor_address mv_tensor_data mv_tensor_free mv_tensor_text mv_version mv_version_text "
    "kv_command_done kv_free kv_optimizer_rate kv_optimizer_states kv_optimizer_step kv_run_server".split()
)
# Outside of quotes: a function of C, with or without "()" or "(0)"; a handle that is closed.
_FUNCTION = re.compile(r'"[^"]*"|\b((?:mv|kv)_[a-z0-9_]+)\b(?:\((?:0|NULL)?\))?')
_CLOSED = re.compile(r"\b(\d+) is a closed ([\w -]+) handle")
# A field of an option struct, which is a parameter of the same name.
_FIELD = re.compile(r"\bmv_[a-z_]+\.(?=[a-z])")


def of_function(name: str) -> str:
    """Python's name of a function of C, as a message writes it: "table.add()" for mv_table_add_rows."""
    if name in _ONLY_IN_C:
        return name
    made = _name(name)
    return made if made in _PLAIN or " " in made else made + "()"


def _name(name: str) -> str:
    if name in _NAMES:
        return _NAMES[name]
    if name.startswith(_OF_GROUPS):
        return "group." + name.removeprefix("mv_")
    prefix = next(prefix for prefix in _OBJECTS if name.startswith(prefix))
    return _OBJECTS[prefix] + name.removeprefix(prefix).removesuffix("_rows").removesuffix("_text")


def _function(match: Match[str]) -> str:
    name = match[1]
    return of_function(name) if name is not None and callable(getattr(capi, name, None)) else match[0]


def _closed(match: Match[str]) -> str:
    known = handles.of_number(int(match[1]))
    if known is None or known.is_closed:
        return f"{known.label if known else 'the ' + match[2]} is closed"
    return f"{known.label} is used after shutdown"


def in_python(text: str) -> str:
    """A message of the library, with Python's names."""
    if "v_" in text:
        text = _FUNCTION.sub(_function, _FIELD.sub("", text))
    return _CLOSED.sub(_closed, text) if " is a closed " in text else text


# ------------------------------------------------------------------ names of modules


def listing(names: Sequence[str], *further: str) -> Callable[[], List[str]]:
    """A module's __dir__(): its public names, without those that it imports."""
    listed = sorted([*names, *further, "__all__", "__doc__", "__file__", "__name__"])
    return lambda: listed


# ------------------------------------------------------------------ names that callers misspell


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """": did you mean ...?" if a known word is similar, otherwise nothing."""
    near = difflib.get_close_matches(word, list(known), 3)
    nearest = min(near, key=lambda one: abs(len(one) - len(word)), default=None)  # "adma" is adam rather than adamax
    return f": did you mean {nearest!r}?" if nearest else ""


_Function = TypeVar("_Function", bound=Callable[..., Any])


def suggests(function: _Function) -> _Function:
    """Makes errors of unknown and of missing parameters say what is expected."""
    parameters = [one for one in inspect.signature(function).parameters.values() if one.name != "self"]
    known = [one.name for one in parameters]
    required = [one.name for one in parameters if one.default is one.empty]
    has_self = len(parameters) < len(inspect.signature(function).parameters)

    @functools.wraps(function)
    def checked(*values: Any, **named: Any) -> Any:
        for name in named:
            if name not in known:
                from .errors import ParameterError  # which imports this module

                hint = did_you_mean(name, known) or f"; known: {', '.join(known)}"
                raise ParameterError(capi.MV_EINVAL, f"{function.__name__}() has no parameter {name!r}{hint}")
        given = values[1:] if has_self else values
        missing = [name for name in required[len(given) :] if name not in named]
        if missing:
            from .errors import ParameterError

            # A shape was given, as numpy takes it.
            shape = given[0] if given and isinstance(given[0], (tuple, list)) and len(given[0]) == len(required) else required
            name = ("node." if has_self else "") + function.__name__
            example = f"{name}({', '.join(map(str, shape))})"
            raise ParameterError(capi.MV_EINVAL, f"{name}(): {' and '.join(missing)} must be given: write {example}")
        return function(*values, **named)

    return checked  # type: ignore[return-value]
