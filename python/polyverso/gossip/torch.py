"""PyTorch's modules that gossip, of PyTorch 1.13 and later."""

from __future__ import annotations

from typing import Any, Dict, Iterable, List

import numpy as np
import torch

from . import Adapter, Config


class TorchAdapter(Adapter):
    """Averages a module's parameters, and with `buffers` its running statistics and the counters of them too, in place.

    On the CPU the parameters' own memory is read and written. Others (of CUDA, or with gaps in memory) have a copy on the host, pinned
    where that helps, which is kept from step to step."""

    def __init__(self, net: torch.nn.Module, name: str, config: Config, buffers: bool = False) -> None:
        super().__init__(name, config)
        self.net = net
        self.buffers = buffers
        self._averaged = [name for name, buffer in net.named_buffers() if _is_averaged(buffer)] if buffers else []
        self._copies: Dict[int, torch.Tensor] = {}

    def _tensors(self) -> List[torch.Tensor]:
        tensors = [parameter.detach() for parameter in self.net.parameters()]
        if self._averaged:
            buffers = dict(self.net.named_buffers())
            tensors += [buffers[name].detach() for name in self._averaged]
        return tensors

    def _published(self) -> Iterable[np.ndarray]:
        return map(_array_of, self._on_host(self._tensors()))

    def _average(self) -> None:
        tensors = self._tensors()
        with torch.no_grad():
            for tensor, host in zip(tensors, self._on_host(tensors)):
                self.gossip.average(_array_of(host))
                if host is not tensor:
                    tensor.copy_(host, non_blocking=host.is_pinned())  # before what the device is told next
                else:
                    tensor.reshape(-1)[:0].zero_()  # of no element: autograd must know that the memory was written

    def _on_host(self, tensors: List[torch.Tensor]) -> List[torch.Tensor]:
        """The tensors themselves where numpy can work on their memory, else up-to-date copies."""
        hosts = [tensor if _is_plain(tensor) else self._copy_for(place, tensor) for place, tensor in enumerate(tensors)]
        devices = set()
        for tensor, host in zip(tensors, hosts):
            if host is not tensor:
                host.copy_(tensor, non_blocking=host.is_pinned())
                if host.is_pinned():
                    devices.add(tensor.device)
        for device in devices:  # all copies of a device travel together, and are waited for once
            torch.cuda.current_stream(device).synchronize()
        return hosts

    def _copy_for(self, place: int, tensor: torch.Tensor) -> torch.Tensor:
        copy = self._copies.get(place)
        if copy is None or copy.shape != tensor.shape or copy.dtype != tensor.dtype:
            copy = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.device.type == "cuda")
            self._copies[place] = copy
        return copy


def _is_averaged(buffer: torch.Tensor) -> bool:
    """Statistics, and counters as num_batches_tracked; not masks, which are of other types, or infinite, nor tables of indices."""
    if buffer.is_floating_point():
        return bool(torch.isfinite(buffer).all())
    return buffer.dtype == torch.int64 and buffer.dim() == 0


def _is_plain(tensor: torch.Tensor) -> bool:
    return tensor.device.type == "cpu" and tensor.is_contiguous()


def _array_of(host: torch.Tensor) -> np.ndarray:
    """A view of its memory. numpy has no bfloat16, whose bits the library takes as uint16."""
    if host.dtype == torch.bfloat16:
        return host.view(torch.int16).numpy().view(np.uint16)
    if host.is_complex():
        return torch.view_as_real(host).numpy()
    return host.numpy()
