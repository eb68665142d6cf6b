-- The exclusive or of two signs, learnt by all workers on their own data, as in Multiverso's demo for Torch.
require 'nn'
local multiverso = require 'multiverso'
multiverso.init()
local is_master = multiverso.worker_id() == 0
torch.manualSeed(multiverso.worker_id() + 1)

local model = nn.Sequential()
model:add(nn.Linear(2, 20))
model:add(nn.Tanh())
model:add(nn.Linear(20, 1))
local criterion = nn.MSECriterion()

local inputs, labels = torch.randn(128, 2), torch.DoubleTensor(128)
for i = 1, 128 do labels[i] = inputs[i][1] * inputs[i][2] > 0 and -1 or 1 end

local params, gradients = model:getParameters()
local handler = multiverso.ArrayTableHandler:new(params:size(1))
if is_master then handler:add(params, true) end
multiverso.barrier()
params:copy(handler:get())

local first, last
for _ = 1, 1000 do
  model:zeroGradParameters()
  local outputs = model:forward(inputs)
  last = criterion:forward(outputs, labels)
  first = first or last
  model:backward(inputs, criterion:backward(outputs, labels))
  handler:add(-0.1 / multiverso.num_workers() * gradients)
  params:copy(handler:get())
  multiverso.barrier()
end

local outputs = model:forward(torch.Tensor{{0.5, 0.5}, {0.5, -0.5}, {-0.5, 0.5}, {-0.5, -0.5}})
local signs = {}
for i = 1, 4 do signs[i] = outputs[i][1] > 0 and "+" or "-" end
if is_master then print(table.concat(signs), last < first / 2) end
multiverso.shutdown()
