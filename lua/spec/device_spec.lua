-- polyverso.tensor on a device, by the emulation of a plug-in that ctest names in POLYVERSO_DEVICE_PLUGIN: the results of
-- the host.

local failure_of = require("spec.failures").of
local polyverso = require("polyverso")
local tensor = require("polyverso.tensor")

local DTYPES = {"f32", "f64", "i64", "i32", "u8", "i8", "f16", "bf16"}

local function has_devices() return polyverso.mv_device_count() > 0 end

-- What a tensor holds, wherever it is, as text: a NaN equals nothing.
local function held(value)
  if type(value) ~= "table" then return value end
  if not tensor.is_tensor(value) then
    local list = {}
    for i, one in ipairs(value) do list[i] = held(one) end
    return list
  end
  if value:row_sparse() then
    local ids, values = value:parts()
    return {held(ids), held(values)}
  end
  local function written(list) -- exact
    if type(list) ~= "table" then return ("%.17g"):format(list) end
    local texts = {}
    for i, one in ipairs(list) do texts[i] = written(one) end
    return table.concat(texts, " ")
  end
  return value:dtype() .. " " .. table.concat(value:shape(), "x") .. ": " .. written(value:to_list())
end

-- compute() gives on the device what it gives on the host.
local function same(compute, ...)
  local here, there = {}, {}
  for i, one in ipairs{...} do here[i], there[i] = one:copy(), one:to("cuda:0") end
  local unpack = unpack or table.unpack
  local host, device = compute(unpack(here)), compute(unpack(there))
  if tensor.is_tensor(host) then
    assert.equal("cuda:0", device:device())
    assert.equal("cpu", host:device())
  end
  assert.same(held(host), held(device))
end

local function numbers(dtype, seed, shape) return tensor.uniform(shape or {5, 17}, seed, 1, 100, dtype) end

describe("a tensor on a device", function()
  if not has_devices() then
    pending("needs POLYVERSO_DEVICE_PLUGIN, as ctest sets it")
    return
  end

  it("gives the host's results", function()
    for _, dtype in ipairs(DTYPES) do
      local a, b = numbers(dtype, 1), numbers(dtype, 2)
      for _, compute in ipairs{
        function(x, y) return x + y end, function(x, y) return x - y end, function(x, y) return x * y end, function(x, y) return x / y end,
        function(x, y) return x:eq(y) end, function(x, y) return x:lt(y) end, function(x, y) return x:minimum(y) end,
        function(x, y) return x:maximum(y) end, function(x, y) return x:axpy(3, y) end, function(x, y) return x:assign(y) end,
        function(x, y) return x:dot(y) end, function(x, y) return x:close(y) end, function(x, y) return x:add_(y) end,
        function(x) return 3 - x end, function(x) return x ^ 2 end, function(x) return -x end, function(x) return x:abs() end,
        function(x) return x:sqrt() end, function(x) return x:exp() end, function(x) return x:log() end, function(x) return x:transpose() end,
        function(x) return x:reshape{-1, 5} end, function(x) return x:row(2) end, function(x) return x:slice(1, 3) end,
        function(x) return x:take{4, 0, 0} end, function(x) return x:copy() end, function(x) return x:fill(5) end,
        function(x) return x:cast("f64") end, function(x) return x:to_sparse() end, function(x) return x:get(3, 4) end,
        function(x) return x + x:row(0):to_list() end, function(x) return x:sum():item() end, function(x) return x:mul_(2) end,
        function(x, y) return x:cast("f32"):matmul(y:cast("f32"), {transpose_b = true}):cast("i32") end,
        function(x) return tensor.sparse({7, 1, 7}, x:slice(0, 3), 9) end,
        function(x) return tensor.sparse({7, 1, 7}, x:slice(0, 3), 9):to_dense() end,
        function(x, y) return tensor.sparse({7, 1}, x:slice(0, 2), 9) + tensor.sparse({1}, y:slice(0, 1), 9) end,
      } do same(compute, a, b) end
      for _, name in ipairs{"sum", "mean", "min", "max", "argmin", "argmax", "norm"} do
        for axis = -1, 1 do same(function(x) return x[name](x, axis) end, a) end
      end
    end
  end)

  it("is made there", function()
    for _, make in ipairs{
      function(device) return tensor.zeros({2, 3}, "f64", device) end, function(device) return tensor.full({2}, 7, "i32", device) end,
      function(device) return tensor.ones(4, nil, device) end, function(device) return tensor.range(9, 1, 2, nil, device) end,
      function(device) return tensor.uniform({5, 5}, 42, 0, 1, nil, device) end,
      function(device) return tensor.normal(50, 42, 3, 2, "f16", device) end,
      function(device) return tensor.copy_of({{1, 2}, {3, 4}}, nil, device) end,
    } do
      local made = make("cuda:1")
      assert.equal("cuda:1", made:device())
      assert.equal(1, made:info().device)
      assert.equal(held(make()), held(made))
      assert.equal("cpu", make("cpu"):device())
    end
    assert.equal("f32 (2) on cuda:0", (tostring(tensor.ones(2, nil, "gpu")):match("^[^\n]*"):gsub(",%)", ")")))
    assert.equal("cuda:1", tensor.copy_of(tensor.ones(2, nil, "cuda:1")):device())
  end)

  it("moves, and is refused beside one elsewhere", function()
    local there = tensor.range(3, 0, 1, nil, "cuda:0")
    assert.same({0, 1, 2}, there:to("cuda:1"):to("cpu"):to_list())
    assert.matches("f32 %(3,%) is on cuda:0, f32 %(3,%) on cuda:1: copy one of them", failure_of(function() return there + there:to("cuda:1") end))
    assert.matches("there is no cuda:9", failure_of(function() return there:to("cuda:9") end))
    assert.matches('"tpu" is not a device', failure_of(function() return there:to("tpu") end))
    if jit then assert.matches("is on cuda:0", failure_of(function() return there:pointer() end)) end
  end)

  it("goes to a store and comes back", function()
    for _, kind in ipairs{"local", "device"} do
      local kv = require("polyverso.kvstore").create(kind)
      local a, b = tensor.ones({2, 2}, nil, "cuda:0"), tensor.ones({2, 2}, nil, "cuda:1")
      kv:init("w", tensor.zeros({2, 2}, nil, "cuda:1"))
      kv:push("w", {a, b})
      kv:pull("w", {a, b})
      assert.same({{2, 2}, {2, 2}}, a:to_list())
      assert.same({{2, 2}, {2, 2}}, b:to_list())
      kv:free()
    end
  end)

  it("gossips with the bits of the host", function()
    local gossip = require("polyverso.gossip")
    local function node_of(name)
      return gossip.open_text(("nodes: [{name: %s, host: 127.0.0.1, port: 0}]\ntimeout_ms: 20000"):format(name), name)
    end
    local averaged = {}
    for _, place in ipairs{"cpu", "cuda:0"} do
      local one, two = node_of("one"), node_of("two")
      one:add_peer("two", "127.0.0.1", tonumber(two:state().address:match(":(%d+)$")))
      local own, other, read = numbers("f32", 1):to(place), numbers("f32", 2):to(place), tensor.zeros({5, 17}, "f32", place)
      two:publish({other}, 1)
      one:update_send({own}, 1)
      assert.equal(0.5, one:update_wait({own}, 1))
      averaged[place] = held(own)
      one:update_send({own}, 1)
      one:fetch_wait(1)
      one:read(read)
      assert.equal(held(other), held(read))
      assert.matches("NaN", failure_of(function() one:publish({tensor.full({2}, 0 / 0, "f32", place)}, 1) end))
      one:close()
      two:close()
    end
    assert.equal(averaged.cpu, averaged["cuda:0"])
  end)

  it("makes room for temporary tensors", function()
    local values = tensor.ones({1000000}, "f32", "cuda:0")
    local function held_bytes()
      for line in io.lines("/proc/self/status") do
        local kilobytes = line:match("^VmRSS:%s*(%d+)")
        if kilobytes then return 1024 * tonumber(kilobytes) end
      end
    end
    local before = held_bytes()
    for _ = 1, 400 do local _ = values * 2 end -- 1.6 GB
    assert.is_true(held_bytes() - before < 400e6)
  end)

  it("holds a table", function()
    local node = require("polyverso").init()
    local table = node:matrix{rows = 3, cols = 2, device = "cuda:1", updater = "sgd rate=1"}
    table:add({{1, 2}, {3, 4}}, {rows = {2, 0}})
    assert.same({{-3, -4}, {0, 0}, {-1, -2}}, table:get())
    assert.matches("no cuda:9", failure_of(function() return node:array{size = 2, device = "cuda:9"} end))
    node:shutdown()
  end)
end)
