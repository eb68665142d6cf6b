--- nn.Criterion and nn.MSECriterion. Internal.

local torch = require("torch")
local fail = require("torch.types").fail

--- A loss: forward(input, target) returns a number, backward(input, target) its gradient with respect to the input.
local Criterion = torch.class("nn.Criterion")

function Criterion:__init() self.output, self.gradInput = 0, torch.Tensor() end
function Criterion:forward(input, target) return self:updateOutput(input, target) end
function Criterion:backward(input, target) return self:updateGradInput(input, target) end
Criterion.__call__ = function(self, input, target) return self:forward(input, target) end
function Criterion:__tostring__() return torch.type(self) end

--- The mean of the squared differences; their sum if sizeAverage is false.
local MSE, parent = torch.class("nn.MSECriterion", "nn.Criterion")

function MSE:__init(sizeAverage)
  parent.__init(self)
  self.sizeAverage = sizeAverage ~= false
end

-- input - target, of the input's size. As in Torch, 128 targets also fit 128 x 1 outputs.
local function differences(input, target)
  if input:nElement() ~= target:nElement() then
    fail("nn.MSECriterion: %d outputs, but %d targets", input:nElement(), target:nElement())
  end
  return input:clone():add(-1, target:typeAs(input):contiguous():viewAs(input))
end

function MSE:updateOutput(input, target)
  local difference = differences(input, target)
  self.output = torch.dot(difference, difference) / (self.sizeAverage and input:nElement() or 1)
  return self.output
end

function MSE:updateGradInput(input, target)
  self.gradInput = differences(input, target):mul(2 / (self.sizeAverage and input:nElement() or 1))
  return self.gradInput
end
