-- Dtypes, sparse and key-value tables, updaters, staleness, checkpoints. Runs under Lua 5.1, LuaJIT and Lua 5.4.

local failure_of = require("spec.failures").of
local polyverso = require("polyverso")

-- The results of a scan, as a table of values by key.
local function scanned(t, how)
  local seen = {}
  for ids, values in t:scan(how) do
    assert.equal(#ids, #values)
    for i, id in ipairs(ids) do seen[tostring(id):gsub("LL$", "")] = values[i] end
  end
  return seen
end

-- The integer with these digits, if this Lua can represent it exactly; otherwise nil.
local function integer(digits)
  if math.type then return math.tointeger(tonumber(digits)) end
  if jit then return assert(loadstring("return " .. digits .. "LL"))() end
end

describe("tables", function()
  local node

  before_each(function() node = polyverso.init{log_level = "error"} end)
  after_each(function() node:shutdown() end)

  it("are of every dtype", function()
    for _, dtype in ipairs{"f32", "f64", "i64", "i32", "u8", "i8", "f16", "bf16", "double", "uint8"} do
      local t = node:matrix{rows = 2, cols = 2, dtype = dtype, init = {{1, 2}, {3, 4}}}
      t:add({{10, 10}}, {rows = {1}})
      assert.same({{1, 2}, {13, 14}}, t:get())
    end
    local half = node:array{size = 3, dtype = "f16", init = {0.1, 65504, -0.5}}:get()
    assert.equal("0.0999755859375 65504 -0.5", ("%.15g %g %g"):format(half[1], half[2], half[3]))
    local brain = node:array{size = 3, dtype = "bf16", init = {0.1, 1.00390625, 1.01171875}}:get()
    assert.equal("0.10009765625 1 1.015625", ("%.15g %g %.15g"):format(brain[1], brain[2], brain[3]))
  end)

  it("keep integers exact, or say that they can't", function()
    local wide = node:array{size = 1, dtype = "i64"}
    local most = integer("9223372036854775807")
    if most then
      wide:add{most}
      assert.is_true(wide:get()[1] == most)
    else
      wide:add{2 ^ 53}
      wide:add{2 ^ 53}
      assert.truthy(failure_of(wide.get, wide).text:find("18014398509481984"))
    end
    local small = node:array{size = 1, dtype = "u8"}
    for _, wrong in ipairs{1.5, 256, -1, "1", true} do
      assert.equal("MV_EDTYPE", failure_of(small.add, small, {wrong}).name)
    end
    local signed = node:array{size = 2, dtype = "i8", init = {-128, 127}}
    signed:add{-1, 1}
    assert.same({127, -128}, signed:get())
    assert.equal("MV_EDTYPE", failure_of(signed.add, signed, {128, 0}).name)
    assert.equal("MV_EDTYPE", failure_of(small.add, small, {1, dtype = 99}).name)
  end)

  it("may be sparse", function()
    local t = node:sparse{rows = 1e9, cols = 2, name = "words", initial = 0.5}
    assert.same({1e9, 0}, {t:size(), t:info().stored})
    t:add({{1, 2}, {1, 1}}, {rows = {999999999, 999999999}})
    assert.same({{0.5, 0.5}, {2.5, 3.5}}, t:get{rows = {5, 999999999}})
    t:set({{7, 7}}, {rows = {5}})
    assert.same({["5"] = {7, 7}, ["999999999"] = {2.5, 3.5}}, scanned(t))
    t:erase{5, 6}
    assert.same({{0.5, 0.5}}, t:peek{rows = {5}})
    assert.equal(1, t:info().stored)
    assert.equal("MV_ERANGE", failure_of(t.get, t, {rows = {1e9}}).name)
    local one = node:sparse{rows = 2, cols = 2, initial_range = 0.5, seed = 1}:get()
    local other = node:sparse{rows = 2, cols = 2, initial_range = 0.5, seed = 2}:get()
    assert.are_not.same(one, other)
  end)

  it("may have keys", function()
    local t = node:keyvalue{dtype = "i64"}
    local large = integer("1234567890123456789") or 2 ^ 53
    t:add({1, 2, 3}, {keys = {0, -1, large}})
    t:add({10, 10}, {rows = {large, large}, wait = false})
    assert.same({1, 2, 23, 0}, t:get{keys = {0, -1, large, 7}})
    assert.equal(3, t:size())
    if math.type then assert.equal(3, #t) end
    local digits = (("%s"):format(tostring(large)):gsub("LL$", ""))
    assert.same({["0"] = 1, ["-1"] = 2, [digits] = 23}, scanned(t, {chunk = 2}))
    t:erase({0, large}, {wait = false})
    t:erase({-1}, {async = true}):wait()
    assert.equal(0, t:size())
    t:set({7}, {keys = {-1}, async = true, timeout = 5}):wait()
    assert.same({7}, t:peek({keys = {-1}, async = true}):wait())
    assert.same({0}, t:get({keys = {5}, async = true}):wait())
    for _, wrong in ipairs{1.5, "one", {}, 2 ^ 70} do
      assert.equal("MV_EDTYPE", failure_of(t.get, t, {keys = {wrong}}).name)
    end
    assert.equal("MV_EINVAL", failure_of(t.get, t).name)
    assert.equal("MV_EINVAL", failure_of(t.get, t, {rows = {1}, keys = {1}}).name)
    assert.equal("MV_EINVAL", failure_of(t.scan, t, {size = 3}).name)
    assert.equal("MV_EINVAL", failure_of(node.array, node, {size = 1, name = "zero\0byte"}).name)
    assert.equal("MV_EINVAL", failure_of(t.set_updater, t, "add\0sgd").name)
    local array = node:array{size = 1}
    assert.equal("MV_EINVAL", failure_of(array.erase, array, {0}).name)
    assert.equal("MV_EINVAL", failure_of(array:scan()).name)
  end)

  it("check the options that a proxy shows", function()
    local t = node:matrix{rows = 2, cols = 1}
    local function proxy(of)
      return setmetatable({}, {__index = of, __pairs = function() return next, of, nil end})
    end
    t:add({{1}}, proxy{rows = {1}})
    assert.same({{0}, {1}}, t:get())
    if not math.type then return end -- Lua 5.1 and LuaJIT know no __pairs
    assert.matches('unknown option "row"', failure_of(t.add, t, {{1}, {1}}, proxy{row = {1}}).text)
    assert.same({{0}, {1}}, t:get())
  end)

  it("may have a capacity", function()
    local t = node:keyvalue{cols = 2, capacity = 10}
    for key = 1, 100 do t:add({{1, 2}}, {keys = {key}}) end
    assert.is_true(t:size() <= 10)
    assert.same({{1, 2}}, t:get{keys = {100}})
  end)

  it("have updaters and clocks", function()
    local t = node:array{size = 2, init = {1, 2}, updater = "sgd rate=0.5", staleness = 1}
    t:add{1, 1}
    assert.same({0.5, 1.5}, t:get())
    t:set_updater("sgd rate=0.25")
    t:set_updater("assign", {async = true, timeout = 5}):wait()
    t:add{7, 8}
    assert.same({7, 8}, t:get())
    for _ = 1, 3 do t:clock() end
    local info = t:info()
    assert.same({"assign", 1, 3}, {info.updater, info.staleness, info.clock})
    local misspelt = failure_of(t.set_updater, t, "sdg")
    assert.equal("MV_EINVAL", misspelt.name)
    assert.truthy(misspelt.text:find("sgd"))
    assert.equal("MV_EINVAL", failure_of(node.array, node, {size = 1, updater = "sgd speed=1"}).name)
    assert.equal("MV_EINVAL", failure_of(node.keyvalue, node, {initial = "much"}).name)
    assert.equal("MV_EINVAL", failure_of(node.keyvalue, node, {capacity = 1.5}).name)
  end)

  it("are saved and loaded", function()
    local folder = os.tmpname()
    os.remove(folder)
    assert.equal(0, tonumber((select(3, os.execute("mkdir " .. folder)))) or 0)
    local first = polyverso.open_node()
    first:keyvalue{name = "kv"}:add({5}, {keys = {-9}})
    first:save(folder)
    first:open("kv"):add({1}, {keys = {-9}})
    first:save(folder, {keep = 1, async = true}):wait(30)
    first:shutdown()
    assert.truthy(polyverso.inspect_checkpoint(folder):find('"kv"', 1, true))
    local second = polyverso.open_node()
    second:load(folder)
    assert.same({6}, second:open("kv"):get{keys = {-9}})
    second:load(folder, {async = true}):wait(30)
    second:shutdown()
    assert.equal("MV_ENOTFOUND", failure_of(node.load, node, folder .. "/none").name)
    assert.equal("MV_ENOTFOUND", failure_of(polyverso.inspect_checkpoint, folder .. "/none").name)
    assert.equal("MV_EINVAL", failure_of(node.save, node, folder, {keep = -1}).name)
    os.execute("rm -r " .. folder)
  end)
end)
