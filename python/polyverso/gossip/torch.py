"""PyTorch's modules that gossip."""

from __future__ import annotations

from typing import Any, Iterable, List

import numpy as np
import torch

from . import Adapter, Config


class TorchAdapter(Adapter):
    """Averages a module's parameters, and with `buffers` its running statistics too, in place.

    On the CPU the parameters' own memory is read and written; parameters on other devices are copied once each way."""

    def __init__(self, net: torch.nn.Module, name: str, config: Config, buffers: bool = False) -> None:
        super().__init__(name, config)
        self.net = net
        self.buffers = buffers

    def _tensors(self) -> List[torch.Tensor]:
        tensors = [parameter.detach() for parameter in self.net.parameters()]
        return tensors + [buffer.detach() for buffer in self.net.buffers()] if self.buffers else tensors

    def _published(self) -> Iterable[Any]:
        return (_array_of(_on_host(tensor)) for tensor in self._tensors())

    def _average(self) -> None:
        with torch.no_grad():
            for tensor in self._tensors():
                host = _on_host(tensor)
                self.gossip.average(_array_of(host))
                if host.data_ptr() != tensor.data_ptr():
                    tensor.copy_(host)


def _on_host(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor itself where numpy can work on its memory, else a copy."""
    return tensor.cpu().contiguous()


def _array_of(host: torch.Tensor) -> np.ndarray:
    """A view of its memory. numpy has no bfloat16, whose bits the library takes as uint16."""
    if host.dtype == torch.bfloat16:
        return host.view(torch.int16).numpy().view(np.uint16).reshape(-1)
    if host.dtype == torch.bool:
        return host.view(torch.uint8).numpy().reshape(-1)
    return host.numpy().reshape(-1)
