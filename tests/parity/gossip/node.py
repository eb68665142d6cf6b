"""A node of gossip_test.py, in Python: see node.c.    node.py NAME VALUE [torch]"""

import sys

import numpy as np

from polyverso import gossip

name, value, *framework = sys.argv[1:]
config = {"nodes": [{"name": name, "host": "127.0.0.1", "port": 0}], "timeout_ms": 20000}
model = np.full(1000, float(value), np.float32)
if framework == ["torch"]:
    import torch

    from polyverso.gossip.torch import TorchAdapter

    net = torch.nn.Linear(1000, 1, bias=False)
    net.weight.data.copy_(torch.from_numpy(model))
    model = net.weight.detach().numpy()[0]
    node = TorchAdapter(net, name, config)
else:
    node = gossip.ArrayAdapter([model], name, config)

print("listens", node.gossip.state["address"].rsplit(":", 1)[1], flush=True)
for line in sys.stdin:
    words = line.split()
    if words[0] == "peer":
        node.gossip.add_peer(words[1], "127.0.0.1", int(words[2]))
    else:
        node.update_send(1)
        print("stepped", node.update_wait(1), model[999], flush=True)
