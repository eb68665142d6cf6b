-- Torch's tensors as the data of polyverso's tables: values, out, row ids, initial values.

local torch = require("torch")
local polyverso = require("polyverso")

describe("a table", function()
  local node, m
  before_each(function()
    node = polyverso.init{log_level = "error"}
    m = node:matrix{rows = 3, cols = 2, name = "m", init = torch.Tensor{{1, 2}, {3, 4}, {5, 6}}}
  end)
  after_each(function() node:shutdown() end)

  it("takes tensors of other types, and those that are not contiguous", function()
    m:add(torch.ones(3, 2))
    m:add(torch.FloatTensor(2, 3):fill(1):t())
    m:add(torch.range(1, 6))
    m:set(torch.zeros(2, 2), {rows = torch.LongTensor{0, 2}})
    m:add(torch.ones(1, 2), {rows = torch.Tensor{2}})
    assert.same({{0, 0}, {8, 10}, {1, 1}}, m:get())
    assert.same({{1, 1}, {8, 10}}, m:get{rows = torch.Tensor{2, 1}})
  end)

  it("writes into tensors", function()
    for _, out in ipairs{torch.zeros(3, 2), torch.FloatTensor(3, 2), torch.zeros(2, 3):t(), torch.FloatTensor(2, 3):t(), torch.zeros(6)} do
      assert.equal(out, m:get{out = out})
      assert.same({1, 2, 3, 4, 5, 6}, out:contiguous():view(6):totable())
    end
    local out = torch.zeros(3, 2)
    m:get({out = out, async = true}):wait(5)
    assert.equal(21, out:sum())
  end)

  it("refuses tensors that do not fit", function()
    for _, wrong in ipairs{torch.ones(2, 3), torch.FloatTensor(1, 6), torch.ones(3, 2):t(), torch.ones(2, 1, 3)} do
      for _, call in ipairs{function() m:add(wrong) end, function() m:set(wrong) end, function() m:get{out = wrong} end} do
        local ended, failure = pcall(call)
        assert.is_false(ended)
        assert.equal("MV_ESHAPE", failure.name)
        assert.matches("values given, 3 x 2 needed", failure.text)
      end
    end
    assert.has_error(function() m:get{rows = torch.Tensor{0.5}} end)
    assert.same({{1, 2}, {3, 4}, {5, 6}}, m:get())
  end)
end)
