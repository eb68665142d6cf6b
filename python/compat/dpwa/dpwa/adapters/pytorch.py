"""The adapter for PyTorch modules."""

from polyverso.gossip.torch import TorchAdapter


class DpwaPyTorchAdapter(TorchAdapter):
    """Averages a module: call update_send(loss) before a batch, update_wait(loss) after it."""

    def __init__(self, net, name, config_file):
        super().__init__(net, name, config_file)
