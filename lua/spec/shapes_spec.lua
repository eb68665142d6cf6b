-- Data with the right number of values and the wrong dimensions, text and nil in lists.

local failures = require("spec.failures")
local gossip = require("polyverso.gossip")
local polyverso = require("polyverso")
local tensor = require("polyverso.tensor")
local ffi = jit and require("ffi")

local function refused(name, pattern, f, ...)
  local failure = failures.from(pcall(f, ...))
  assert.equal(name, failure.name)
  assert.matches(pattern, failure.text)
  assert.matches("shapes_spec.lua:%d+: ", failure.where)
end

describe("a matrix", function()
  local node, m
  before_each(function()
    node = polyverso.init{log_level = "error"}
    m = node:matrix{rows = 3, cols = 2, name = "m"}
  end)
  after_each(function() node:shutdown() end)

  it("takes its own dimensions, and flat data", function()
    m:add{{1, 2}, {3, 4}, {5, 6}}
    m:add{1, 1, 1, 1, 1, 1}
    m:add(tensor.ones({3, 2}))
    m:add(tensor.ones({6}))
    m:set(tensor.full({2, 2}, 9), {rows = {0, 2}})
    assert.same({{9, 9}, {6, 7}, {9, 9}}, m:get())
    local out = tensor.zeros({3, 2})
    assert.equal(out, m:get{out = out})
    assert.same({{9, 9}, {6, 7}, {9, 9}}, out:to_list())
  end)

  it("refuses other dimensions with as many values", function()
    for _, wrong in ipairs{{{1, 2, 3}, {4, 5, 6}}, {{1}, {2}, {3}, {4}, {5}, {6}}, {{1, 2, 3, 4, 5, 6}}} do
      for _, method in ipairs{"add", "set"} do refused("MV_ESHAPE", 'table "m": %d x %d values given, 3 x 2 needed', m[method], m, wrong) end
    end
    for _, shape in ipairs{{2, 3}, {1, 6}, {2, 1, 3}, {6, 1}} do
      local wrong = tensor.ones(shape)
      refused("MV_ESHAPE", table.concat(shape, " x ") .. " values given, 3 x 2 needed", m.add, m, wrong)
      refused("MV_ESHAPE", "3 x 2 needed", m.set, m, wrong)
      refused("MV_ESHAPE", "3 x 2 needed", m.get, m, {out = wrong})
    end
    refused("MV_ESHAPE", "4 x 1 values given, 2 x 2 needed", m.add, m, {{1}, {2}, {3}, {4}}, {rows = {0, 1}})
    refused("MV_ESHAPE", "1 x 4 values given, 2 x 2 needed", m.set, m, tensor.ones({1, 4}), {rows = {0, 1}})
    local spec = {rows = 3, cols = 2, name = "n", init = tensor.ones({2, 3})}
    refused("MV_ESHAPE", 'init of table "n": 2 x 3 values given, 3 x 2', node.matrix, node, spec)
    assert.same({{0, 0}, {0, 0}, {0, 0}}, m:get())
  end)

  it("takes ids in tensors, and checks what is given with them", function()
    local ids, block = tensor.copy_of({0, 2}, "i64"), tensor.ones({2, 2})
    m:add(block, {rows = ids})
    m:set(tensor.full({4}, 5), {rows = tensor.copy_of({1, 1}, "i64")})
    assert.same({{1, 1}, {5, 5}, {1, 1}}, m:get())
    local out = tensor.zeros({2, 2})
    assert.equal(out, m:get{rows = ids, out = out})
    assert.same({{1, 1}, {1, 1}}, out:to_list())
    assert.same({{1, 1}, {1, 1}}, m:get{rows = ids})
    m:add(block, {rows = ids, async = true}):wait()
    refused("MV_ESHAPE", "1 x 4 values given, 2 x 2 needed", m.add, m, tensor.ones({1, 4}), {rows = ids})
    refused("MV_ESHAPE", "4 x 1 values given, 2 x 2 needed", m.get, m, {rows = ids, out = tensor.zeros({4, 1})})
    refused("MV_ESHAPE", "6", m.add, m, tensor.ones({6}), {rows = ids})
    refused("MV_ERANGE", "3", m.add, m, block, {rows = tensor.copy_of({0, 3}, "i64")})
    refused("MV_EDTYPE", "", m.add, m, block, {rows = tensor.copy_of({0, 2}, "f32")})
    refused("MV_EINVAL", "only one", m.add, m, block, {rows = ids, keys = ids})
    refused("MV_EINVAL", "row", m.add, m, block, {row = ids})
    refused("MV_EDTYPE", "nil was given", m.add, m, nil, {rows = ids})
    assert.same({{2, 2}, {5, 5}, {2, 2}}, m:get())
  end)

  it("refuses lists that are ragged, too deep or mixed", function()
    refused("MV_ESHAPE", "row 1 has 2 values, row 2 has 1", m.add, m, {{1, 2}, {3}, {4, 5, 6}})
    refused("MV_ESHAPE", "row 1 has 1 values, row 2 has 3", m.add, m, {{1}, {2, 3, 4}, {5, 6}})
    refused("MV_ESHAPE", "nested too deeply", m.add, m, {{{1}, {2}}, {{3}, {4}}, {{5}, {6}}})
    refused("MV_EDTYPE", "row 2 is a number", m.add, m, {{1, 2}, 3, 4})
    refused("MV_EDTYPE", "data%[3%] is a table, not a number", m.add, m, {1, 2, {3, 4}, 5, 6, 7})
    refused("MV_EDTYPE", "row 3 is a string", m.add, m, {{1, 2}, {3, 4}, "56"})
  end)

  it("refuses text and nil", function()
    for _, wrong in ipairs{"abcdefghijklmnopqrstuvwx", 5, true, print} do refused("MV_EDTYPE", 'table "m": a table of numbers', m.add, m, wrong) end
    refused("MV_EDTYPE", "data%[2%] is a string", m.add, m, {1, "2", 3, 4, 5, 6})
    refused("MV_EDTYPE", "data%[4%] is a string", m.set, m, {{1, 2}, {3, "x"}, {5, 6}})
    refused("MV_EDTYPE", "data%[1%] is a nil", m.add, m, {n = 6, nil, 2, 3, 4, 5, 6})
    refused("MV_EDTYPE", "data%[1%] is a nil", m.add, m, {{nil, 2}, {3, 4}, {5, 6}})
    for _, wrong in ipairs{"12345678", 1, true} do refused("MV_EDTYPE", "rows: a table of integers", m.add, m, {1, 2}, {rows = wrong}) end
    refused("MV_EDTYPE", "`out` must be a table", m.get, m, {out = "text"})
  end)

  if ffi then
    it("knows the dimensions of FFI arrays", function()
      m:add(ffi.new("float[3][2]", {{1, 2}, {3, 4}, {5, 6}}))
      m:add(ffi.new("float[6]"))
      assert.same({{1, 2}, {3, 4}, {5, 6}}, m:get())
      refused("MV_ESHAPE", "2 x 3 values given, 3 x 2 needed", m.add, m, ffi.new("float[2][3]"))
      refused("MV_ESHAPE", "2 x 3 values given", m.get, m, {out = ffi.new("float[2][3]")})
      local six = ffi.new("float[6]")
      refused("MV_ESHAPE", "2 x 3 values given", m.add, m, {pointer = ffi.cast("float *", six), count = 6, shape = {2, 3}})
    end)
  end
end)

describe("one dimension", function()
  it("fits everything", function()
    local node = polyverso.init{log_level = "error"}
    local a, m, kv = node:array{size = 6}, node:matrix{rows = 2, cols = 6}, node:keyvalue{cols = 2}
    a:add(tensor.ones({2, 3}))
    a:add{{1, 1}, {1, 1}, {1, 1}}
    assert.same({2, 2, 2, 2, 2, 2}, a:get())
    assert.equal("MV_ESHAPE", failures.of(a.add, a, tensor.ones({2, 4})).name)
    refused("MV_ESHAPE", "row 1 has 2 values, row 2 has 1", a.add, a, {{1, 2}, {3}, {4, 5, 6}})
    m:add(tensor.ones({2, 3, 2})) -- as the kernels of a convolution
    m:add(tensor.ones({2, 1, 2, 3}))
    assert.same({{2, 2, 2, 2, 2, 2}, {2, 2, 2, 2, 2, 2}}, m:get())
    refused("MV_ESHAPE", "3 x 2 x 2 values given, 2 x 6 needed", m.add, m, tensor.ones({3, 2, 2}))
    refused("MV_ESHAPE", "1 x 2 x 6 values given, 2 x 6 needed", m.add, m, tensor.ones({1, 2, 6}))
    kv:add({{1, 2}, {3, 4}}, {keys = {7, 8}})
    refused("MV_ESHAPE", "1 x 4 values given, 2 x 2 needed", kv.add, kv, {{1, 2, 3, 4}}, {keys = {7, 8}})
    node:shutdown()
  end)
end)

describe("gossip", function()
  local function open(name)
    return gossip.open_text(("nodes: [{name: %s, host: 127.0.0.1, port: 0}]\ntimeout_ms: 20000"):format(name), name)
  end

  it("tells dimensions to the peers", function()
    local one, two = open("one"), open("two")
    one:add_peer("two", "127.0.0.1", tonumber(two:state().address:match(":(%d+)$")))
    two:publish({{{2, 4, 6}, {8, 10, 12}}}, 1)
    local own = {{0, 0, 0}, {0, 0, 0}}
    one:update_send({own}, 1)
    assert.equal(0.5, one:update_wait({own}, 1))
    assert.same({{1, 2, 3}, {4, 5, 6}}, own)
    two:publish({tensor.ones({3, 2})}, 1) -- as many values, in other dimensions
    one:update_send({own}, 1)
    local ended, factor = pcall(one.update_wait, one, {own}, 1)
    assert.is_true(not ended or factor == 0)
    assert.same({{1, 2, 3}, {4, 5, 6}}, own)
    one:close()
    two:close()
  end)

  it("refuses what is no list of arrays, and ragged arrays, at once", function()
    local one = open("one")
    refused("MV_EDTYPE", "array 1: a list of numbers", one.publish, one, {1, 2, 3}, 1)
    refused("MV_EDTYPE", "array 2: a list of numbers", one.update_send, one, {{1}, "text"}, 1)
    refused("MV_EDTYPE", "a list of arrays is needed", one.publish, one, tensor.ones({3}), 1)
    refused("MV_ESHAPE", "row 1 has 2 values, row 2 has 1", one.publish, one, {{{1, 2}, {3}}}, 1)
    one:publish({{{1, 2}, {3, 4}}}, 1) -- what was refused left nothing behind
    one:close()
  end)
end)
