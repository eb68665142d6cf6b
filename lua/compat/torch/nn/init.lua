--- A small stand-in for Torch's nn, on the stand-in for Torch: the modules of fully connected networks.
--
--     require 'nn'
--     local model = nn.Sequential():add(nn.Linear(2, 20)):add(nn.Tanh()):add(nn.Linear(20, 1))
--     local criterion = nn.MSECriterion()
--     local params, gradients = model:getParameters()      -- all of them, as two flat tensors
--     model:zeroGradParameters()
--     local loss = criterion:forward(model:forward(inputs), targets)
--     model:backward(inputs, criterion:backward(model.output, targets))
--     model:updateParameters(0.01)
--
-- docs/torch.md lists its modules.

require("torch")

local nn = {}
_G.nn = nn -- Torch's nn also sets the global
package.loaded.nn = nn -- for the files below

require("nn.module")
require("nn.layers")
require("nn.criterions")

--- An error for a module that the stand-in does not have; with Torch's nn, scripts find it.
return setmetatable(nn, {__index = function(_, name)
  if type(name) ~= "string" or not name:find("^%u") then return nil end
  local known = {}
  for other in pairs(nn) do known[#known + 1] = other end
  table.sort(known)
  error(("nn.%s is not part of Polyverso's stand-in for nn, which has: %s"):format(name, table.concat(known, ", ")), 2)
end})
