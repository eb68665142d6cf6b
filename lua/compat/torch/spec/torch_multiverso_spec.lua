-- Scripts written for Torch and Multiverso: the handlers take and return tensors.

require("torch")

local mv = require("multiverso")

local function set_of(list)
  local set = {}
  for _, item in ipairs(list) do set[item] = true end
  return set
end

describe("multiverso with torch", function()
  before_each(function() mv.init(false) end)
  after_each(function() mv.shutdown() end)

  it("shares arrays", function()
    local size = 100000
    local tbh = mv.ArrayTableHandler:new(size)
    mv.barrier()
    for i = 1, 20 do
      tbh:add(torch.range(1, size))
      tbh:add(torch.range(1, size), true)
      mv.barrier()
      local data = tbh:get()
      assert.equal("torch.FloatTensor", torch.type(data))
      assert.same(torch.range(1, 10):mul(2 * i):totable(), data[{{1, 10}}]:totable())
      assert.equal(2 * i * size, data[size])
    end
    local mine = torch.Tensor(size)
    mine:copy(tbh:get())
    assert.equal(40, mine[1])
  end)

  it("shares matrices, whole and by rows", function()
    local rows, columns = 11, 10
    local size = rows * columns
    local tbh = mv.MatrixTableHandler:new(rows, columns)
    local ids = {0, 1, 5, 10}
    local chosen = set_of(ids)
    for i = 1, 3 do
      tbh:add(torch.range(1, size))
      local data = torch.range(ids[1] * columns + 1, ids[1] * columns + columns)
      for j = 2, #ids do data = torch.cat(data, torch.range(ids[j] * columns + 1, ids[j] * columns + columns)) end
      tbh:add(data, ids)
      mv.barrier()
      local all = tbh:get()
      for j = 1, all:size(1) do
        for k = 1, all:size(2) do
          assert.equal(((j - 1) * columns + k) * i * (chosen[j - 1] and 2 or 1), all[j][k])
        end
      end
      local some = tbh:get(ids)
      assert.same({4, 10}, some:size():totable())
      for j = 1, some:size(1) do assert.equal((ids[j] * columns + 1) * 2 * i, some[j][1]) end
      assert.same(some:totable(), tbh:get(torch.LongTensor(ids)):totable())
    end
  end)

  it("takes tensors of every kind, and tables", function()
    local tbh = mv.ArrayTableHandler:new(6, torch.range(1, 6))
    tbh:add{1, 1, 1, 1, 1, 1}
    tbh:add(torch.IntTensor{1, 2, 3, 4, 5, 6})
    tbh:add(torch.FloatTensor{{1, 3, 5}, {2, 4, 6}}:t(), true) -- not contiguous
    assert.same({4, 7, 10, 13, 16, 19}, tbh:get():totable())
    local matrix = mv.MatrixTableHandler:new(2, 3, {{1, 2, 3}, {4, 5, 6}})
    matrix:add(torch.ones(2, 3), nil, true)
    matrix:add(torch.Tensor{{10, 20, 30}}, torch.LongTensor{1}, true)
    assert.same({{2, 3, 4}, {15, 26, 37}}, matrix:get():totable())
    assert.same({{7}, {8}}, mv.MatrixTableHandler:New(2, 1, torch.Tensor{{7}, {8}}):get():totable())
  end)

  it("takes the average of initial values", function()
    assert.same({1, 2}, mv.ArrayTableHandler:new(2, torch.Tensor{1, 2}, "average"):get():totable())
    assert.same({{1}, {2}}, mv.MatrixTableHandler:new(2, 1, torch.LongTensor{{1}, {2}}, "average"):get():totable())
    assert.same({{3}, {4}}, mv.MatrixTableHandler:new(2, 1, {{3}, {4}}, "average"):get():totable())
    local values = torch.Tensor{1, 2}
    mv.ArrayTableHandler:new(2, values, "average")
    assert.same({1, 2}, values:totable())
  end)

  it("refuses what does not fit", function()
    local array, matrix = mv.ArrayTableHandler:new(3), mv.MatrixTableHandler:new(3, 2)
    assert.has_error(function() array:add(torch.Tensor(2)) end)
    assert.has_error(function() array:add(torch.Tensor()) end)
    assert.has_error(function() matrix:add(torch.Tensor(3), {0}) end)
    assert.has_error(function() matrix:get(torch.LongTensor{3}) end)
    assert.has_error(function() mv.ArrayTableHandler:new(3, torch.Tensor(2)) end)
    assert.same({0, 0, 0}, array:get():totable())
  end)

  it("refuses storages, and what is no row ids", function()
    local function refused(text, f, ...)
      local ended, failure = pcall(f, ...)
      assert.is_false(ended)
      assert.truthy(tostring(failure.text):find(text, 1, true), tostring(failure.text))
    end
    local array, matrix = mv.ArrayTableHandler:new(3), mv.MatrixTableHandler:new(3, 2)
    refused("a table of numbers, a tensor or FFI memory is needed, not a torch.FloatStorage", array.add, array, torch.FloatStorage{1, 2, 3})
    refused("row_ids: a table of integers, such as {0}, is needed, not a", matrix.get, matrix, torch.LongStorage{0, 1})
    refused("rows[1] is 1.9, not an integer", matrix.add, matrix, torch.ones(1, 2), torch.Tensor{1.9}, true)
    refused("num_row must be an integer", mv.MatrixTableHandler.new, mv.MatrixTableHandler, torch.Tensor{2}, 2)
    assert.same(torch.zeros(3, 2):totable(), matrix:get():totable())
    matrix:add(torch.ones(2, 2), torch.Tensor{{2}, {0}}, true) -- ids in any shape, as in Python
    matrix:add(torch.ones(2, 2), torch.LongTensor{{2, 1}, {0, 1}}:select(2, 1), true)
    matrix:add(torch.ones(2, 2), torch.IntTensor{{2}, {0}}, true)
    matrix:add(torch.ones(2, 2), torch.LongTensor{{2}, {0}}, true)
    assert.same({{4, 4}, {0, 0}, {4, 4}}, matrix:get():totable())
    assert.same({4, 4}, matrix:get(torch.LongTensor{{2}})[1]:totable())
    assert.equal(0, matrix:get(torch.Tensor()):nElement() + matrix:get(torch.LongTensor()):nElement())
  end)
end)

describe("a Torch that is installed", function()
  -- The parts of Torch that the handlers need: isTensor, FloatTensor, and tensors' float, contiguous, nElement, data.
  local handlers, loaded, made
  before_each(function()
    loaded = package.loaded.torch
    made = {}
    if jit then
      local ffi = require("ffi")
      local Tensor = {}
      Tensor.__index = Tensor
      function Tensor:float() return self end
      function Tensor:contiguous() return self end
      function Tensor:nElement() return self.count end
      function Tensor:data() return ffi.cast("float *", self.memory) end
      local function new(rows, columns)
        local count = rows * (columns or 1)
        local tensor = setmetatable({memory = ffi.new("float[?]", count), count = count}, Tensor)
        made[#made + 1] = tensor
        return tensor
      end
      package.loaded.torch = {isTensor = function(value) return getmetatable(value) == Tensor end, FloatTensor = new}
    end
    handlers = require("multiverso")
    handlers.init(false)
  end)
  after_each(function()
    handlers.shutdown()
    package.loaded.torch = loaded
  end)

  if jit then
    it("is used through its pointers", function()
      local array = handlers.ArrayTableHandler:new(2)
      local gradient = package.loaded.torch.FloatTensor(2)
      gradient:data()[0], gradient:data()[1] = 1, 2
      array:add(gradient, true)
      local got = array:get()
      assert.equal(got, made[2])
      assert.same({1, 2}, {got:data()[0], got:data()[1]})
    end)
  end
end)
