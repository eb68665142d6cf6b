--- nn.Module and nn.Sequential. Internal.

local torch = require("torch")
local fail = require("torch.types").fail

--- A part of a network. `output` and `gradInput` hold the results of the last forward() and backward().
local Module = torch.class("nn.Module")

function Module:__init()
  self.output, self.gradInput, self.train = torch.Tensor(), torch.Tensor(), true
end

--- The output for an input: a vector, or a matrix with one row for each example.
function Module:forward(input) return self:updateOutput(input) end

--- The gradient of the input, from the gradient of the output; adds `scale` times the parameters' gradients to theirs.
function Module:backward(input, gradOutput, scale)
  self:updateGradInput(input, gradOutput)
  self:accGradParameters(input, gradOutput, scale or 1)
  return self.gradInput
end

function Module:updateOutput() return self.output end
function Module:updateGradInput() return self.gradInput end
function Module:accGradParameters() end

--- Two lists: the parameters and their gradients; nothing for a module without any.
function Module:parameters()
  if self.weight and self.bias then return {self.weight, self.bias}, {self.gradWeight, self.gradBias} end
end

function Module:zeroGradParameters()
  local _, gradients = self:parameters()
  for _, gradient in ipairs(gradients or {}) do gradient:zero() end
end

--- parameters = parameters - rate * gradients
function Module:updateParameters(rate)
  local parameters, gradients = self:parameters()
  for i, parameter in ipairs(parameters or {}) do parameter:add(-rate, gradients[i]) end
end

-- Moves tensors into the memory of one flat tensor, in their order, and returns it. A tensor that is shared by several
-- modules appears in the list several times, and in the flat one once.
local function flatten(tensors)
  local count, seen, distinct = 0, {}, {}
  for _, tensor in ipairs(tensors) do
    if not seen[tensor] then
      seen[tensor], distinct[#distinct + 1] = true, tensor
      count = count + tensor:nElement()
    end
  end
  local flat = torch.Tensor(count)
  if tensors[1] then flat = flat:typeAs(tensors[1]) end
  local offset = 1
  for _, tensor in ipairs(distinct) do
    local sizes, length = tensor:size(), tensor:nElement()
    flat:narrow(1, offset, length):copy(tensor)
    tensor:set(flat:storage(), offset, sizes)
    offset = offset + length
  end
  return flat
end

--- All parameters as one flat tensor, and all gradients as another. The modules then use this memory: a change of the
-- one is a change of the other. Call it once, after the network is complete.
function Module:getParameters()
  local parameters, gradients = self:parameters()
  return flatten(parameters or {}), flatten(gradients or {})
end

function Module:training() self.train = true end
function Module:evaluate() self.train = false end

--- Calls visit(module) with this module and all modules in it.
function Module:apply(visit)
  visit(self)
  for _, module in ipairs(self.modules or {}) do module:apply(visit) end
  return self
end

--- A copy with memory of its own.
function Module:clone() return torch.deserialize(torch.serialize(self)) end

--- Converts all tensors, type("torch.FloatTensor"); without a type, returns the type.
function Module:type(name)
  if not name then return self.output:type() end
  self:apply(function(module)
    for key, value in pairs(module) do
      if torch.isTensor(value) then rawset(module, key, value:type(name)) end
    end
  end)
  return self
end
function Module:float() return self:type("torch.FloatTensor") end
function Module:double() return self:type("torch.DoubleTensor") end

Module.__call__ = function(self, input) return self:forward(input) end
function Module:__tostring__() return torch.type(self) end

-- ------------------------------------------------------------------ nn.Sequential

--- Modules one after the other: each gets the output of the one before.
local Sequential, parent = torch.class("nn.Sequential", "nn.Module")

function Sequential:__init()
  parent.__init(self)
  self.modules = {}
end

--- Appends a module; returns the network.
function Sequential:add(module)
  if type(module) ~= "table" or not module.updateOutput then fail("nn.Sequential: a module is needed, not a %s", torch.type(module)) end
  self.modules[#self.modules + 1] = module
  return self
end

function Sequential:get(position) return self.modules[position] end
function Sequential:size() return #self.modules end

function Sequential:updateOutput(input)
  for _, module in ipairs(self.modules) do input = module:updateOutput(input) end
  self.output = input
  return input
end

-- Calls call(module, its input, the gradient of its output) from the last module to the first; each call returns the
-- gradient of the module's input.
local function backwards(self, input, gradOutput, call)
  local modules = self.modules
  for i = #modules, 1, -1 do gradOutput = call(modules[i], i > 1 and modules[i - 1].output or input, gradOutput) end
  self.gradInput = gradOutput
  return gradOutput
end

function Sequential:updateGradInput(input, gradOutput)
  return backwards(self, input, gradOutput, function(module, own, gradient) return module:updateGradInput(own, gradient) end)
end

-- After updateGradInput(), so that the gradients of all outputs are known.
function Sequential:accGradParameters(input, gradOutput, scale)
  local modules = self.modules
  for i = #modules, 1, -1 do
    modules[i]:accGradParameters(i > 1 and modules[i - 1].output or input, i < #modules and modules[i + 1].gradInput or gradOutput, scale)
  end
end

function Sequential:parameters()
  local parameters, gradients = {}, {}
  for _, module in ipairs(self.modules) do
    local own, theirs = module:parameters()
    for i = 1, #(own or {}) do parameters[#parameters + 1], gradients[#gradients + 1] = own[i], theirs[i] end
  end
  return parameters, gradients
end

function Sequential:training() for _, module in ipairs(self.modules) do module:training() end end
function Sequential:evaluate() for _, module in ipairs(self.modules) do module:evaluate() end end

function Sequential:__tostring__()
  local lines = {"nn.Sequential {"}
  for i, module in ipairs(self.modules) do lines[#lines + 1] = ("  (%d): %s"):format(i, (tostring(module):gsub("\n", "\n  "))) end
  lines[#lines + 1] = "}"
  return table.concat(lines, "\n")
end
