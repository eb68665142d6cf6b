-- Multiverso's API.

local multiverso = require("multiverso")

local function ramp(count, factor)
  local list = {}
  for i = 1, count do list[i] = i * factor end
  return list
end

for _, sync in ipairs{false, true} do
  describe(sync and "multiverso, sync" or "multiverso, async", function()
    before_each(function() multiverso.init(sync) end)
    after_each(function() multiverso.shutdown() end)

    it("knows its place", function()
      multiverso.barrier()
      assert.equal(1, multiverso.num_workers())
      assert.equal(0, multiverso.worker_id())
      assert.equal(0, multiverso.server_id())
    end)

    it("shares arrays", function()
      local table = multiverso.ArrayTableHandler:new(100, ramp(100, 1))
      assert.same(ramp(100, 1), table:get())
      for i = 1, 10 do
        table:add(ramp(100, 1))
        table:add(ramp(100, 1), true)
        multiverso.barrier()
        assert.same(ramp(100, 1 + 2 * i), table:get())
      end
    end)

    it("shares matrices", function()
      local table = multiverso.MatrixTableHandler:new(3, 2)
      assert.same({{0, 0}, {0, 0}, {0, 0}}, table:get())
      table:add({{1, 2}, {3, 4}, {5, 6}})
      table:add({1, 2, 3, 4, 5, 6}, nil, true)
      table:add({{10, 20}, {100, 200}}, {2, 2})
      assert.same({{2, 4}, {6, 8}, {120, 232}}, table:get())
      assert.same({{120, 232}, {2, 4}}, table:get({2, 0}))
      table = multiverso.MatrixTableHandler:new(2, 2, {{1, 2}, {3, 4}})
      assert.same({{1, 2}, {3, 4}}, table:get())
    end)

    it("takes the average of initial values", function()
      assert.same({1, 2}, multiverso.ArrayTableHandler:new(2, {1, 2}, "average"):get())
      assert.same({{1, 2}}, multiverso.MatrixTableHandler:new(1, 2, {{1, 2}}, "average"):get())
      assert.same({0, 0}, multiverso.ArrayTableHandler:new(2, nil, "average"):get())
      assert.has_error(function() multiverso.ArrayTableHandler:new(2, {1}, "average") end)
      assert.has_error(function() multiverso.ArrayTableHandler:new(2, {1, 2}, "mean") end)
    end)

    it("refuses what does not fit", function()
      local array, matrix = multiverso.ArrayTableHandler:new(3), multiverso.MatrixTableHandler:new(3, 2)
      assert.has_error(function() array:add({1, 2}) end)
      assert.has_error(function() array:add() end)
      assert.has_error(function() matrix:add({1, 2, 3}, {0}) end)
      assert.has_error(function() matrix:get({3}) end)
      assert.has_error(function() multiverso.ArrayTableHandler:new(3, {1, 2}) end)
    end)
  end)
end

describe("multiverso", function()
  it("says so where it was not initialised", function()
    local _, failure = pcall(multiverso.barrier)
    assert.equal("MV_ESTATE", failure.name)
  end)
end)
