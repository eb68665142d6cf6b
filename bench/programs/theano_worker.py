"""A worker with one shared variable of Theano, the only one of a cluster (`polyverso run -n 1 --servers 1`). Operation:
sync, Multiverso's mv_sync() of the variable of BYTES bytes, after a change of its first element."""

import batch
import multiverso as mv
import numpy as np
from multiverso.theano_ext import sharedvar


class Variable:
    def __init__(self):
        self.made = {}

    def prepare(self, _, size):
        count = size // 4
        if count not in self.made:
            self.made[count] = sharedvar.mv_shared(value=np.zeros(count, np.float32), name=f"W{count}", borrow=True)
        self.variable = self.made[count]
        self.expected = self.value()[0]
        return self.repeat, self.check

    def value(self):
        return self.variable.get_value(borrow=True)

    def repeat(self, times):
        for _ in range(times):
            self.value()[0] += 1
            self.variable.mv_sync()
        self.expected += times

    def check(self):
        if self.value()[0] != self.expected or self.value()[1:].any():
            batch.fail(f"the variable is {self.value()[0]}, not {self.expected}")


mv.init()
batch.serve(Variable().prepare)
mv.shutdown()
