"""dpwa's node and its configuration."""

import yaml

from polyverso import gossip

from .interpolation import ClockWeightedInterpolation, ConstantInterpolation, LossInterpolation

INTERPOLATION_METHODS = {
    "constant": ConstantInterpolation,
    "clock": ClockWeightedInterpolation,
    "loss": LossInterpolation,
}

BUILT_IN = tuple(INTERPOLATION_METHODS.values())  # a copy: callers may change the dictionary

# The library's defaults.
DEFAULTS = {
    "fetch_probability": 1,
    "timeout_ms": 2500,
    "interpolation": "constant",
    "divergence_threshold": 0,
    "constant": {"value": 0.5},
    "clock": 0,
    "loss": 0,
}


class Struct:
    """Named values, such as name, host and port of a node."""

    def __init__(self, **entries):
        self.__dict__.update(entries)

    def __repr__(self):
        return "Struct: " + repr(self.__dict__)


def _config_of(tree):
    config = dict(DEFAULTS)
    loose = []
    for item in [tree] if isinstance(tree, dict) else tree:
        if "name" in item:
            loose.append(item)  # a node directly in the list
        else:
            config.update(item)
    config["nodes"] = (config.get("nodes") or []) + loose
    return config


class DpwaConfiguration:
    """The content of a configuration file. DpwaConnection validates it."""

    def __init__(self, config_file):
        with open(config_file, "rt", encoding="utf-8") as file:
            text = file.read()
        self.yaml = yaml.safe_load(text)
        self.config = _config_of(self.yaml)
        as_written = _config_of(yaml.load(text, yaml.BaseLoader))  # names that YAML reads as numbers or dates
        for node, written in zip(self.config["nodes"], as_written["nodes"]):
            if "name" in written:  # DpwaConnection reports a node without one
                node["name"] = written["name"]

    def get_nodes(self):
        return self.config["nodes"]

    def get_interpolation(self):
        interpolation = self.config["interpolation"]
        return interpolation, self.config.get(interpolation)

    def get_timeoutms(self):
        return self.config["timeout_ms"]

    def get_fetch_probability(self):
        return self.config["fetch_probability"]

    def get_divergence_threshold(self):
        return self.config["divergence_threshold"]


class Interpolated:
    """A node whose `interpolation` computes the factor for averaging, from the clocks and losses of both nodes. If it is
    the built-in method of the file, the library computes the factor. Another one that is assigned to it, or registered
    in INTERPOLATION_METHODS, is called."""

    def _configure(self, config):
        self.divergence_threshold = config.get_divergence_threshold()
        method, settings = config.get_interpolation()
        made = INTERPOLATION_METHODS.get(method)  # for callers to inspect; the library has more methods
        self.interpolation = made(**(settings or {})) if made else None
        self._own = self.interpolation if made in BUILT_IN else None  # computed by the library

    def _is_built_in(self):
        return self.interpolation is self._own

    def _factor(self, clock, peer, loss):
        """The factor, and the clock after the average."""
        factor = min(max(float(self.interpolation(clock, peer["peer_clock"], loss, peer["peer_loss"])), 0.0), 1.0)
        if self.divergence_threshold and loss < self.divergence_threshold:
            factor *= max(loss / self.divergence_threshold, 0.0)
        return factor, factor * peer["peer_clock"] + (1 - factor) * clock


class DpwaConnection(Interpolated):
    """Exchanges byte payloads, with the factor for averaging a peer's payload."""

    def __init__(self, name, config_file):
        self.name = name
        self._connection = gossip.Connection(name, config_file)  # first: reports errors in the file, with position
        self.config = DpwaConfiguration(config_file)
        self.nodes = self.config.get_nodes()
        self.peers = [Struct(**node) for node in self.nodes if node["name"] != name]
        self.me = next(Struct(**node) for node in self.nodes if node["name"] == name)
        self.fetch_probability = self.config.get_fetch_probability()
        self._configure(self.config)
        self.fetching = False

    @property
    def clock(self):
        """The model's age in updates."""
        return self._connection.gossip.clock

    @clock.setter
    def clock(self, clock):
        self._connection.gossip.clock = clock

    def add_peer(self, name, host, port):
        """Adds a peer, or changes its address."""
        if any(peer["name"] == name for peer in self._connection.gossip.peers):
            self.remove_peer(name)
        self._connection.gossip.add_peer(name, host, port)

    def remove_peer(self, name):
        self._connection.gossip.remove_peer(name)

    def update_send(self, parameters, loss):
        """Makes `parameters` visible to peers, and begins to fetch a peer's."""
        self.fetching = self._connection.update_send(parameters, loss)

    def update_wait(self, loss):
        """A peer's parameters and their factor; (None, 0) if nothing was fetched."""
        self.fetching = False
        if self._is_built_in():
            return self._connection.update_wait(loss)
        clock = self.clock
        payload, peer = self._connection.fetched(loss)
        if payload is None:
            return None, 0
        factor, self.clock = self._factor(clock, peer, loss)
        return payload, factor

    def close(self):
        """Closes the node and releases its port."""
        self._connection.close()
