"""The adapter for PyTorch modules."""

import torch

from polyverso.gossip.torch import TorchAdapter, array_of

from ..dpwa import DpwaConfiguration, Interpolated


class DpwaPyTorchAdapter(Interpolated, TorchAdapter):
    """Averages a module: call update_send(loss) before a batch, update_wait(loss) after it."""

    def __init__(self, net, name, config_file):
        super().__init__(net, name, config_file)  # first: reports errors in the file, with position
        self._configure(DpwaConfiguration(config_file))

    def update_wait(self, loss):
        """Waits for the fetched parameters and averages with them. Returns the peer's share, 0 without a peer."""
        if self._is_built_in():
            return super().update_wait(loss)
        clock = self.gossip.clock
        peer = self.gossip.fetch_wait(loss)
        if peer is None:
            return 0.0
        factor, self.gossip.clock = self._factor(clock, peer, loss)
        with torch.no_grad():
            for parameter in self.net.parameters():
                theirs = torch.empty_like(parameter, device="cpu", memory_format=torch.contiguous_format)
                self.gossip.read(array_of(theirs))
                parameter.copy_(factor * theirs.to(parameter.device) + (1 - factor) * parameter)
        return factor
