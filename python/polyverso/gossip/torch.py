"""Gossip for PyTorch modules, for PyTorch 1.13 and later."""

from __future__ import annotations

from typing import Dict, Iterable, List

import numpy as np

from .._extras import advice

try:
    import torch
except ModuleNotFoundError as missing:
    raise advice(missing, "torch") from None

from . import Adapter, Config


class TorchAdapter(Adapter):
    """Averages a module's parameters in place; with `buffers`, also its running statistics and their counters.

    Contiguous parameters on the CPU are read and written in their own memory. Others (on CUDA, or with gaps) have a
    copy on the host, which is pinned for CUDA and reused in every step."""

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
        return map(array_of, self._on_host(self._tensors()))

    def _average(self) -> None:
        tensors = self._tensors()
        with torch.no_grad():
            for tensor, host in zip(tensors, self._on_host(tensors)):
                self.gossip.average(array_of(host))
                if host is not tensor:
                    tensor.copy_(host, non_blocking=host.is_pinned())  # in stream order: before the device's next work
                else:
                    tensor.reshape(-1)[:0].zero_()  # writes no element: tells autograd that the memory changed

    def _on_host(self, tensors: List[torch.Tensor]) -> List[torch.Tensor]:
        """The tensors themselves if numpy can use their memory, otherwise up-to-date copies."""
        hosts = [tensor if _is_plain(tensor) else self._copy_for(place, tensor) for place, tensor in enumerate(tensors)]
        devices = set()
        for tensor, host in zip(tensors, hosts):
            if host is not tensor:
                host.copy_(tensor, non_blocking=host.is_pinned())
                if host.is_pinned():
                    devices.add(tensor.device)
        for device in devices:  # one wait for all copies from a device
            torch.cuda.current_stream(device).synchronize()
        return hosts

    def _copy_for(self, place: int, tensor: torch.Tensor) -> torch.Tensor:
        copy = self._copies.get(place)
        if copy is None or copy.shape != tensor.shape or copy.dtype != tensor.dtype:
            copy = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.device.type == "cuda")
            self._copies[place] = copy
        return copy


def _is_averaged(buffer: torch.Tensor) -> bool:
    """True for statistics and counters such as num_batches_tracked; False for masks (other dtypes, or infinite) and
    index tables."""
    if buffer.is_floating_point():
        return bool(torch.isfinite(buffer).all())
    return buffer.dtype == torch.int64 and buffer.dim() == 0


def _is_plain(tensor: torch.Tensor) -> bool:
    return tensor.device.type == "cpu" and tensor.is_contiguous()


def array_of(host: torch.Tensor) -> np.ndarray:
    """A view of its memory. numpy has no bfloat16: its bits are passed as uint16."""
    if host.dtype == torch.bfloat16:
        return host.view(torch.int16).numpy().view(np.uint16)
    if host.is_complex():
        return torch.view_as_real(host).numpy()
    return host.numpy()
