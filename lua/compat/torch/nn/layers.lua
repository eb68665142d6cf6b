--- nn.Linear and the functions of single elements. Internal.

local torch = require("torch")
local fail = require("torch.types").fail

-- ------------------------------------------------------------------ nn.Linear

--- y = weight * x + bias. weight is outputSize x inputSize.
local Linear, parent = torch.class("nn.Linear", "nn.Module")

function Linear:__init(inputSize, outputSize, bias)
  parent.__init(self)
  self.weight, self.gradWeight = torch.Tensor(outputSize, inputSize), torch.Tensor(outputSize, inputSize)
  if bias ~= false then self.bias, self.gradBias = torch.Tensor(outputSize), torch.Tensor(outputSize) end
  self:reset()
end

--- New random parameters, uniform within +-1 / sqrt(inputSize), or +-sqrt(3) * deviation.
function Linear:reset(deviation)
  local range = deviation and deviation * math.sqrt(3) or 1 / math.sqrt(self.weight:size(2))
  self.weight:uniform(-range, range)
  if self.bias then self.bias:uniform(-range, range) end
  return self
end

function Linear:parameters()
  if self.bias then return {self.weight, self.bias}, {self.gradWeight, self.gradBias} end
  return {self.weight}, {self.gradWeight}
end

-- A vector as a matrix of one row.
local function as_rows(tensor)
  if tensor:dim() == 1 then return tensor:contiguous():view(1, tensor:nElement()) end
  if tensor:dim() == 2 then return tensor end
  fail("nn.Linear: a vector or a matrix is needed, not a tensor of %d dimensions", tensor:dim())
end

-- A result for the rows of an input: a vector for a vector.
local function like(input, rows) return input:dim() == 1 and rows:view(rows:nElement()) or rows end

function Linear:updateOutput(input)
  local rows = as_rows(input)
  if rows:size(2) ~= self.weight:size(2) then
    fail("nn.Linear: inputs of %d values are needed, not of %d", self.weight:size(2), rows:size(2))
  end
  local output = torch.mm(rows, self.weight:t())
  if self.bias then output:add(self.bias:view(1, self.bias:nElement()):expandAs(output)) end
  self.output = like(input, output)
  return self.output
end

function Linear:updateGradInput(input, gradOutput)
  self.gradInput = like(input, torch.mm(as_rows(gradOutput), self.weight))
  return self.gradInput
end

function Linear:accGradParameters(input, gradOutput, scale)
  local gradients = as_rows(gradOutput)
  self.gradWeight:addmm(scale or 1, gradients:t(), as_rows(input))
  if self.bias then self.gradBias:add(scale or 1, gradients:sum(1):view(self.bias:nElement())) end
end

function Linear:__tostring__()
  local bias = self.bias and "" or " without bias"
  return ("nn.Linear(%d -> %d)%s"):format(self.weight:size(2), self.weight:size(1), bias)
end

-- ------------------------------------------------------------------ functions of single elements

-- A module y = value(x), with the derivative slope(x, y).
local function elementwise(name, value, slope)
  local class = torch.class("nn." .. name, "nn.Module")
  function class:updateOutput(input)
    self.output = value(input)
    return self.output
  end
  function class:updateGradInput(input, gradOutput)
    self.gradInput = slope(input, self.output):cmul(gradOutput)
    return self.gradInput
  end
end

elementwise("Tanh", function(x) return torch.tanh(x) end, function(_, y) return torch.cmul(y, y):neg():add(1) end)
elementwise("Sigmoid", function(x) return torch.sigmoid(x) end, function(_, y) return torch.cmul(y, y):neg():add(y) end)
elementwise("ReLU", function(x) return torch.cmul(x, x:gt(0):typeAs(x)) end, function(x) return x:gt(0):typeAs(x) end)
elementwise("Identity", function(x) return x end, function(x) return x:clone():fill(1) end)
