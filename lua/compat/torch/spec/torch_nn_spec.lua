-- The stand-in for nn: gradients against differences, flat parameters, training.

require("nn")

-- The largest difference between the gradients of a network's parameters and input and their numerical estimates.
local function gradient_error(model, input, target)
  local criterion = nn.MSECriterion()
  local params, gradients = model:getParameters()
  local function loss() return criterion:forward(model:forward(input), target) end
  model:zeroGradParameters()
  loss()
  local gradInput = model:backward(input, criterion:backward(model.output, target)):clone()
  local worst = 0
  for _, pair in ipairs{{params, gradients}, {input:view(input:nElement()), gradInput:view(input:nElement())}} do
    local values, found = pair[1], pair[2]
    for i = 1, values:nElement() do
      local before, step = values[i], 1e-5
      values[i] = before + step
      local above = loss()
      values[i] = before - step
      local below = loss()
      values[i] = before
      worst = math.max(worst, math.abs((above - below) / (2 * step) - found[i]))
    end
  end
  return worst
end

describe("nn", function()
  before_each(function() torch.manualSeed(1) end)

  it("computes gradients", function()
    for _, name in ipairs{"Tanh", "Sigmoid", "ReLU", "Identity"} do
      local model = nn.Sequential():add(nn.Linear(3, 5)):add(nn[name]()):add(nn.Linear(5, 2, false))
      assert.is_true(gradient_error(model, torch.randn(4, 3), torch.randn(4, 2)) < 1e-8)
      assert.is_true(gradient_error(model, torch.randn(3), torch.randn(2)) < 1e-8)
    end
    local deep = nn.Sequential():add(nn.Sequential():add(nn.Linear(2, 3)):add(nn.Tanh())):add(nn.Linear(3, 1))
    assert.is_true(gradient_error(deep, torch.randn(6, 2), torch.randn(6)) < 1e-8)
  end)

  it("computes what Torch's documentation says", function()
    local linear = nn.Linear(2, 1)
    linear.weight:copy(torch.Tensor{{2, -1}})
    linear.bias:fill(0.5)
    assert.same({{2.5}, {-0.5}}, linear:forward(torch.Tensor{{1, 0}, {0, 1}}):totable())
    assert.same({3.5}, linear(torch.Tensor{2, 1}):totable())
    local criterion = nn.MSECriterion()
    assert.equal(2.5, criterion:forward(torch.Tensor{{1}, {2}}, torch.Tensor{0, 4}))
    assert.same({{1}, {-2}}, criterion:backward(torch.Tensor{{1}, {2}}, torch.Tensor{0, 4}):totable())
    assert.equal(5, nn.MSECriterion(false)(torch.Tensor{1, 2}, torch.Tensor{0, 4}))
    local range = 1 / math.sqrt(100)
    local weight = nn.Linear(100, 50).weight
    assert.is_true(weight:max() <= range and weight:min() >= -range and weight:max() > 0.9 * range)
  end)

  it("has its parameters in one tensor", function()
    local shared = nn.Linear(2, 2)
    local model = nn.Sequential():add(shared):add(nn.Tanh()):add(shared)
    local params, gradients = model:getParameters()
    assert.same({6, 6}, {params:nElement(), gradients:nElement()})
    params:fill(3)
    assert.equal(3, shared.weight[2][1])
    gradients:fill(2)
    model:updateParameters(0.5)
    assert.equal(1, shared.bias[1]) -- twice in the list, as in Torch
    model:zeroGradParameters()
    assert.equal(0, gradients:sum())
    local copy = model:clone()
    copy:get(1).weight:zero()
    assert.equal(1, shared.weight[1][1])
    assert.equal("torch.FloatTensor", copy:float():forward(torch.FloatTensor(1, 2)):type())
  end)

  it("says what is wrong", function()
    local _, failure = pcall(function() nn.Linear(2, 3):forward(torch.ones(4, 3)) end)
    assert.matches("torch_nn_spec.lua:%d+: nn.Linear: inputs of 2 values are needed, not of 3", failure)
    assert.error_matches(function() nn.MSECriterion():forward(torch.ones(2), torch.ones(3)) end, "2 outputs, but 3 targets")
    assert.error_matches(function() nn.SpatialConvolution(1, 2, 3, 3) end, "nn.SpatialConvolution is not part of .* Linear")
    assert.error_matches(function() nn.Sequential():add(5) end, "a module is needed, not a number")
    assert.equal("nn.Sequential {\n  (1): nn.Linear(2 -> 3)\n  (2): nn.Tanh\n}", tostring(nn.Sequential():add(nn.Linear(2, 3)):add(nn.Tanh())))
  end)
end)
