"""Interpolation methods: the peer's share in an average, from the clocks and losses of both nodes. The library computes
the same values."""


import math


class InterpolationBase:
    def __call__(self, clock, peer_clock, loss, peer_loss):
        raise NotImplementedError


class ConstantInterpolation(InterpolationBase):
    """A constant factor."""

    def __init__(self, value):
        assert 0 <= value <= 1
        self._value = value

    def __call__(self, clock, peer_clock, loss, peer_loss):
        return self._value


def _share(part, other):
    """part / (part + other), within 0 .. 1; 0/0 counts as one half."""
    whole = part + other
    if math.isinf(whole):
        part, whole = part / 2, part / 2 + other / 2
    if whole == 0:
        return 0.5 if part == 0 else float(part > 0)
    return min(max(part / whole, 0.0), 1.0)


class ClockWeightedInterpolation(InterpolationBase):
    """The factor grows with the age of the peer's model (its clock)."""

    def __call__(self, clock, peer_clock, loss, peer_loss):
        return _share(peer_clock, clock)


class LossInterpolation(InterpolationBase):
    """The factor grows with this node's own loss."""

    def __call__(self, clock, peer_clock, loss, peer_loss):
        return _share(loss, peer_loss)
