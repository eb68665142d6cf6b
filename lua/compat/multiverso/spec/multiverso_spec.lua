-- Multiverso's API.

local multiverso = require("multiverso")

local function ramp(count, factor)
  local list = {}
  for i = 1, count do list[i] = i * factor end
  return list
end

describe("multiverso's functions", function()
  it("have annotations", function()
    local classes = {multiverso, multiverso.ArrayTableHandler, multiverso.MatrixTableHandler}
    assert.same({}, require("spec.annotations").complaints("multiverso", classes))
  end)
end)

describe("multiverso without a node", function()
  it("names its own functions", function()
    local function says(text, call, ...)
      local ended, failure = pcall(call, ...)
      assert.is_false(ended)
      assert.equal(text, failure.text)
    end
    says("multiverso.barrier: call multiverso.init() first", multiverso.barrier)
    says("multiverso.shutdown: call multiverso.init() first", multiverso.shutdown)
    says("multiverso.num_workers: call multiverso.init() first", multiverso.num_workers)
    says("multiverso.worker_id: call multiverso.init() first", multiverso.worker_id)
    says("multiverso.server_id: call multiverso.init() first", multiverso.server_id)
    says("multiverso.ArrayTableHandler:new: call multiverso.init() first", multiverso.ArrayTableHandler.new, multiverso.ArrayTableHandler, 3)
    says("multiverso.MatrixTableHandler:new: call multiverso.init() first", multiverso.MatrixTableHandler.new, multiverso.MatrixTableHandler, 3, 2)
    multiverso.init()
    local array, matrix = multiverso.ArrayTableHandler:new(3), multiverso.MatrixTableHandler:new(3, 2)
    assert.equal("<multiverso.ArrayTableHandler 3> <multiverso.MatrixTableHandler 3 x 2>", tostring(array) .. " " .. tostring(matrix))
    multiverso.shutdown()
    assert.equal("<multiverso.ArrayTableHandler 3, after shutdown>", tostring(array))
  end)
end)

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

describe("handlers", function()
  local function refused(pattern, f, ...)
    local ended, failure = pcall(f, ...)
    assert.is_false(ended)
    assert.matches(pattern, failure.text)
    assert.matches("multiverso_spec.lua:%d+: ", failure.where)
  end

  it("refuse matrices of other dimensions, ragged lists, text, and dots", function()
    multiverso.init(false)
    local array, matrix = multiverso.ArrayTableHandler:new(6), multiverso.MatrixTableHandler:new(3, 2)
    array:add({{1, 2}, {3, 4}, {5, 6}}, true) -- an array has no dimensions that could differ
    assert.same({1, 2, 3, 4, 5, 6}, array:get())
    refused("2 x 3 values given, 3 x 2 needed", matrix.add, matrix, {{1, 2, 3}, {4, 5, 6}})
    refused("4 x 1 values given, 2 x 2 needed", matrix.add, matrix, {{1}, {2}, {3}, {4}}, {0, 1})
    refused("2 x 3 values given", multiverso.MatrixTableHandler.new, multiverso.MatrixTableHandler, 3, 2, {{1, 2, 3}, {4, 5, 6}})
    refused("row 1 has 2 values, row 2 has 1", array.add, array, {{1, 2}, {3}, {4, 5, 6}})
    refused("not a string", array.add, array, ("x"):rep(24))
    refused("methods are called with a colon", array.add, {1, 2, 3, 4, 5, 6})
    refused("called with a colon", multiverso.ArrayTableHandler.new, 6)
    assert.same({{0, 0}, {0, 0}, {0, 0}}, matrix:get())
    refused("this array: a table of numbers, a tensor or FFI memory is needed, not nil", array.add, array)
    refused("not nil", matrix.add, matrix, nil, {0})
    refused("not a userdata", array.add, array, io.stdout)
    multiverso.shutdown()
    refused("ArrayTableHandler:get%(%) after shutdown", array.get, array)
  end)
end)

describe("handlers", function()
  before_each(function() multiverso.init(false) end)
  after_each(function() multiverso.shutdown() end)

  local function refused(text, f, ...)
    local ended, failure = pcall(f, ...)
    assert.is_false(ended)
    assert.truthy(tostring(failure.text):find(text, 1, true), tostring(failure.text))
  end

  it("refuse row ids that are none", function()
    local matrix = multiverso.MatrixTableHandler:new(3, 2)
    refused("row_ids is true, and must be a table of integers; sync comes after it: add(delta, nil, true)", matrix.add, matrix,
      {1, 2, 3, 4, 5, 6}, true)
    refused("row_ids: a table of integers, such as {1}, is needed, not a number", matrix.add, matrix, {1, 2}, 1)
    refused("row_ids: a table of integers, such as {1}, is needed, not a number", matrix.get, matrix, 1)
    refused("row_ids: a table of integers, such as {0}, is needed, not a string", matrix.get, matrix, "12345678")
    refused("not a boolean", matrix.get, matrix, true)
    refused("rows[1] is 0.5, not an integer", matrix.add, matrix, {1, 2}, {0.5}, true)
    assert.same({{0, 0}, {0, 0}, {0, 0}}, matrix:get())
  end)

  it("refuse sizes that are no integers", function()
    local array, matrix = multiverso.ArrayTableHandler, multiverso.MatrixTableHandler
    refused("multiverso.ArrayTableHandler:new: size must be an integer, not 2.5", array.new, array, 2.5)
    refused('size must be an integer, not "4"', array.new, array, "4")
    refused("size must be an integer, not nil", array.new, array)
    refused("size must be an integer, not true", array.new, array, true)
    refused("size must be an integer, not inf", array.new, array, math.huge)
    refused("multiverso.MatrixTableHandler:new: num_row must be an integer, not 2.5", matrix.new, matrix, 2.5, 2)
    refused("num_col must be an integer, not nil", matrix.new, matrix, 2)
    refused("at least 1", array.new, array, 0)
  end)
end)

describe("workers with different modes", function()
  local ranks = require("spec.ranks")
  local function output(flags, sync)
    local path = os.tmpname()
    local file = assert(io.open(path, "w"))
    file:write(([[
      local multiverso, capi = require("multiverso"), require("polyverso.capi")
      local _, failure = pcall(multiverso.init, %s)
      print(failure and failure.name or "sync " .. capi.mv_is_sync(0))
      if failure then os.exit(1) end -- the launcher then ends the other worker, which waits for this one
      multiverso.shutdown()
    ]]):format(sync))
    file:close()
    local command = "timeout 60 polyverso run -n 2 %s -- %s %s 2>&1"
    local pipe = assert(io.popen(command:format(flags, ranks.INTERPRETER, path)))
    local text = pipe:read("*a")
    pipe:close()
    os.remove(path)
    return text
  end

  it("disagree", function()
    local text = output("", 'os.getenv("POLYVERSO_RANK") == "0"')
    assert.truthy(text:find("MV_EDISAGREE", 1, true), text)
    assert.is_nil(text:find("sync %d"), text)
  end)

  it("follow the launcher, which is told", function()
    local text = output("--sync", "false")
    assert.truthy(text:find("POLYVERSO_SYNC=1 overrules it", 1, true), text)
    assert.equal(2, select(2, text:gsub("sync 1", "")), text)
    assert.is_nil(output("--sync", "true"):find("overrules", 1, true))
    assert.equal(2, select(2, output("", "false"):gsub("sync 0", "")))
  end)
end)

describe("multiverso", function()
  it("says so where it was not initialised", function()
    local _, failure = pcall(multiverso.barrier)
    assert.equal("MV_ESTATE", failure.name)
  end)
end)
