-- polyverso.kvstore: the examples of MXNet's manual, the accepted values, optimizers.

local capi = require("polyverso.capi")
local failure_of = require("spec.failures").of
local kvstore = require("polyverso.kvstore")
local lr_scheduler = require("polyverso.lr_scheduler")
local optimizer = require("polyverso.optimizer")
local polyverso = require("polyverso")
local tensor = require("polyverso.tensor")
local ffi = jit and require("ffi")

local SHAPE = {2, 3}
local function ones() return tensor.ones(SHAPE) end
local function zeros() return tensor.zeros(SHAPE) end
local function holds(t, value) assert.is_true(t:equal(tensor.full(t:shape(), value)), tostring(t)) end

-- A list of `count` results of make().
local function several(count, make)
  local list = {}
  for i = 1, count do list[i] = make() end
  return list
end

describe("MXNet's examples:", function()
  local kv, a
  local keys = {5, 7, 9}
  before_each(function()
    kv, a = kvstore.create("local"), zeros()
    kv:init(3, ones() * 2)
  end)

  it("init", function()
    kv:pull(3, a)
    holds(a, 2)
    kv:init(keys, several(#keys, ones))
    kv:pull(9, a)
    holds(a, 1)
  end)

  it("push", function()
    kv:push(3, ones() * 8)
    kv:pull(3, a) -- pull out the value
    holds(a, 8)
    kv:push(3, several(4, ones)) -- aggregate the value and then push
    kv:pull(3, a)
    holds(a, 4)
    -- push a list of keys: single device
    kv:init(keys, several(#keys, zeros))
    kv:push(keys, several(#keys, ones))
    local b = several(#keys, zeros)
    kv:pull(keys, b)
    holds(b[2], 1)
    -- multiple devices
    b = several(#keys, function() return several(4, ones) end)
    kv:push(keys, b)
    kv:pull(keys, b)
    holds(b[2][2], 4)
  end)

  it("pull", function()
    kv:pull(3, a)
    holds(a, 2)
    local b = several(4, ones) -- pull into multiple devices
    kv:pull(3, b)
    holds(b[2], 2)
    -- a list of keys: on a single device, and on several
    kv:init(keys, several(#keys, function() return ones() * 2 end))
    b = several(#keys, zeros)
    kv:pull(keys, b)
    holds(b[2], 2)
    b = several(#keys, function() return several(4, ones) end)
    kv:pull(keys, b)
    holds(b[2][2], 2)
  end)

  it("row_sparse_pull", function()
    local shape = {3, 3}
    kv:init(4, tensor.ones(shape):to_sparse())
    local out = tensor.zeros(shape):to_sparse()
    kv:row_sparse_pull(4, out, tensor.copy_of({0, 2}, "i64"))
    assert.same({{1, 1, 1}, {0, 0, 0}, {1, 1, 1}}, out:to_dense():to_list())
    kv:row_sparse_pull(4, out, {2, 2}) -- repeated
    assert.same({{0, 0, 0}, {0, 0, 0}, {1, 1, 1}}, out:to_dense():to_list())
    assert.matches("table of integers", failure_of(kv.row_sparse_pull, kv, 4, out, {"a"}).text)
    kv:row_sparse_pull(4, out, {1, 0}) -- unsorted
    assert.same({{1, 1, 1}, {1, 1, 1}, {0, 0, 0}}, out:to_dense():to_list())
  end)

  it("set_gradient_compression", function()
    kv:init(4, zeros())
    kv:set_gradient_compression{type = "2bit", threshold = 0.5}
    for _, pair in ipairs{{0.3, 0}, {0.3, 0.5}, {-1.2, -0.5}} do -- the residual is added to the next push
      kv:push(4, ones() * pair[1])
      kv:pull(4, a)
      holds(a, pair[2])
    end
    assert.matches("2bit", failure_of(kv.set_gradient_compression, kv, "3bit").text)
    assert.matches("no type", failure_of(kv.set_gradient_compression, kv, {threshold = 1}).text)
  end)

  it("set_updater", function()
    local said = {}
    kv:push(3, ones() * 4)
    kv:set_updater(function(key, input, stored)
      said[#said + 1] = "update on key: " .. key
      stored:add_(input * 2)
    end)
    kv:pull(3, a)
    holds(a, 4)
    kv:push(3, ones())
    assert.same({"update on key: 3"}, said)
    kv:pull(3, a)
    holds(a, 6)
  end)

  it("type, rank and workers", function()
    assert.equal("local", kv:type())
    assert.equal(0, kv:rank())
    assert.equal(1, kv:num_workers())
    assert.equal("local_allreduce_cpu", kvstore.create("Local_AllReduce_CPU"):type())
    assert.equal("local", kvstore.create():type())
    assert.equal("<polyverso.KVStore local>", tostring(kv))
    local failure = failure_of(kvstore.create, "dist_sink")
    assert.equal("MV_EINVAL", failure.name)
    assert.matches("dist_sync", failure.text)
    assert.equal("MV_ESTATE", failure_of(kvstore.create, "dist").name)
  end)
end)

describe("a store", function()
  local kv
  before_each(function() kv = kvstore.create("device") end)
  after_each(function() kv:free() end)

  it("pushes and pulls in one, broadcasts", function()
    local a, b = ones(), zeros()
    kv:broadcast("w", a, b)
    holds(b, 1)
    kv:pushpull("w", {a, a, a}, {a, b})
    holds(a, 3)
    holds(b, 3)
    kv:pushpull("w", a)
    holds(a, 3)
  end)

  it("keeps what was pushed", function()
    local a = ones()
    kv:init("w", a)
    a:fill(5)
    kv:push("w", a)
    a:fill(6)
    kv:pull("w", a)
    holds(a, 5)
  end)

  it("takes tensors of every dtype", function()
    for _, dtype in ipairs{"f32", "f64", "f16", "bf16", "i64", "i32", "u8", "i8"} do
      kv:init(dtype, tensor.zeros({4}, dtype))
      kv:push(dtype, {tensor.range(4, 0, 1, dtype), tensor.full({4}, 2, dtype)})
      local out = tensor.zeros({4}, dtype)
      kv:pull(dtype, out)
      assert.same({2, 3, 4, 5}, out:to_list())
      assert.equal("MV_EDTYPE", failure_of(kv.push, kv, dtype, tensor.zeros({4}, dtype == "f64" and "f32" or "f64")).name)
    end
  end)

  if ffi then
    it("takes FFI memory", function()
      local flat, shaped = ffi.new("float[6]", {1, 2, 3, 4, 5, 6}), ffi.new("float[6]")
      kv:init("flat", flat)
      flat[0] = 0
      kv:pull("flat", flat)
      assert.equal(1, flat[0])
      kv:init("w", ones())
      kv:pull("w", {pointer = shaped, count = 6, shape = SHAPE})
      assert.equal(1, shaped[5])
      assert.equal("MV_ESHAPE", failure_of(kv.pull, kv, "w", shaped).name)
    end)
  end

  it("has keys that are all numbers or all names", function()
    kv:init(1, ones())
    assert.matches("numbers", failure_of(kv.init, kv, "w", ones()).text)
    assert.matches("all names", failure_of(kv.push, kv, {1, "w"}, {ones(), ones()}).text)
    assert.matches("integer", failure_of(kv.push, kv, 1.5, ones()).text)
  end)

  it("goes on after what is wrong", function()
    local a = ones()
    kv:init({"a", "b"}, {a, a})
    local function wrong(reason, method, ...) assert.matches(reason, failure_of(kv[method], kv, ...).text) end
    wrong("store:init", "push", "c", a)
    wrong("twice", "push", {"a", "a"}, {a, a})
    wrong("already", "init", "a", a)
    wrong("%(2, 3%)", "push", "a", tensor.ones{3, 2})
    wrong("one value for 2 keys", "push", {"a", "b"}, a)
    wrong("3 values for 2 keys", "push", {"a", "b"}, {a, a, a})
    wrong("has 0", "push", "a", {})
    wrong("nothing to pull into", "pull", "a")
    wrong("element 2", "push", "a", {a, 5})
    wrong("unknown option 'timeuot'", "push", "a", a, {timeuot = 5})
    wrong("learning_rate", "set_optimizer", "mx.adam learning_rat=3")
    wrong("adam", "set_optimizer", "mx.adom")
    kv:pull("b", a, {timeout = 5})
    holds(a, 1)
  end)

  it("has an updater that may fail", function()
    local seen = {}
    kv:init({"good", "bad", "late"}, {ones(), ones(), ones()})
    kv:set_updater(function(key, merged, stored)
      seen[#seen + 1] = key
      if key == "bad" then error("not this one", 0) end
      stored:add_(merged)
    end)
    local given = {{ones(), ones()}, ones(), ones()}
    assert.equal("not this one", failure_of(kv.push, kv, {"good", "bad", "late"}, given))
    assert.same({"good", "bad", "late"}, seen)
    local out = several(3, zeros)
    kv:pull({"good", "bad", "late"}, out)
    holds(out[1], 3)
    holds(out[2], 1)
    holds(out[3], 2)
    kv:set_updater(nil)
    kv:pushpull("bad", ones() * 9, out[1])
    holds(out[1], 9)
  end)

  it("refuses a yield of its updater, and works afterwards", function()
    kv:init("w", ones())
    kv:set_updater(function(_, merged, stored)
      stored:add_(merged)
      coroutine.yield()
    end)
    local pushing = coroutine.create(function() kv:push("w", ones()) end)
    local ended, failure = coroutine.resume(pushing)
    assert.is_false(ended)
    assert.matches("yield", tostring(failure))
    assert.equal("dead", coroutine.status(pushing))
    pushing = nil
    collectgarbage()
    local out = zeros()
    kv:pull("w", out)
    holds(out, 1)
    kv:set_updater(function(_, merged, stored)
      for each in coroutine.wrap(function() coroutine.yield(merged) end) do stored:add_(each) end -- its own coroutines may
    end)
    kv:pushpull("w", ones(), out)
    holds(out, 2)
  end)

  it("pulls while something else happens", function()
    local a = zeros()
    kv:init("w", ones())
    local request = kv:pull("w", a, {async = true})
    request:wait(5)
    holds(a, 1)
  end)

  it("sends commands to the server that this process is", function()
    local node = polyverso.init()
    local dist, seen = kvstore.create("dist_sync", node), {}
    kvstore.set_controller(function(head, body)
      seen[#seen + 1] = head .. body
      if head == 13 then error("no such command") end
    end, node)
    dist:send_command(1, "one")
    local refused = failure_of(dist.send_command, dist, 13, "")
    assert.equal("MV_EINVAL", refused.name)
    assert.matches("no such command", refused.text)
    assert.same({"1one", "13"}, seen)
    assert.is_true(kvstore.run_commands(0, node))
    kvstore.set_controller(nil, node)
    node:shutdown()
  end)

  it("of a cluster of one", function()
    local node = polyverso.init()
    local dist = kvstore.create("dist_sync", node)
    local a = ones()
    dist:init("w", a)
    dist:pushpull("w", {a, a})
    holds(a, 2)
    dist:barrier()
    dist:leave()
    assert.matches("left", failure_of(dist.push, dist, "w", a).text)
    node:shutdown()
    assert.equal("MV_EHANDLE", failure_of(dist.pull, dist, "w", a).name)
  end)
end)

describe("an optimizer", function()
  it("updates what is there and what comes", function()
    local kv, a = kvstore.create("local"), zeros()
    kv:init(1, ones())
    kv:set_optimizer(optimizer.create("SGD", {learning_rate = 0.5}))
    kv:init(2, ones())
    for key = 1, 2 do
      kv:pushpull(key, ones(), a)
      holds(a, 0.5)
    end
  end)

  it("may be changed, and a local store goes by it", function()
    local kv, a = kvstore.create("local"), zeros()
    kv:init({"w", "v"}, {ones(), ones()})
    local made = optimizer.SGD{learning_rate = 0.5, momentum = 0.5}
    kv:set_optimizer(made)
    local expected = {0.5, 0.25, 0.125, 0.0625, -0.46875}
    for i, change in ipairs{
      function() end,
      function() made:set_learning_rate(0) end, -- the momentum still moves the value
      function() made.parameters.learning_rate, made.parameters.rescale_grad = 0.5, 0 end,
      function() made.parameters.rescale_grad = 1; made:set_lr_mult{w = 0} end,
      function() made:set_lr_mult{} end,
    } do
      change()
      kv:push("w", ones())
      kv:pull("w", a)
      holds(a, expected[i])
    end
  end)

  it("that is refused changes nothing", function()
    local kv, a = kvstore.create("local"), zeros()
    kv:init({"a", "z"}, {ones(), tensor.zeros(SHAPE, "i32")})
    assert.matches('"z"', failure_of(kv.set_optimizer, kv, optimizer.SGD{learning_rate = 0.5}).text)
    kv:push("a", ones() * 5)
    kv:pull("a", a)
    holds(a, 5)
  end)

  it("has MXNet's other names", function()
    assert.matches("warmup_strategy=sqrt", tostring(optimizer.LBSGD{warmup_startegy = "sqrt"}))
    assert.matches("eps=0.5", tostring(optimizer.AdaGrad{float_stable_eps = 0.5, sym = 1}))
    assert.matches("lamda=0.5", tostring(optimizer.DCASGD{lambda = 0.5}))
    assert.matches("no parameter 'lambda'", failure_of(optimizer.SGD, {lambda = 1}).text)
  end)

  it("is taken by the library, each of them", function()
    local kv = kvstore.create("local")
    local known = failure_of(optimizer.create, "adamant").text:match("known: (.*)")
    local count = 0
    for name in known:gmatch("%w+") do
      kv:set_optimizer(optimizer.create(name, {wd = 0.25, clip_gradient = 5}))
      count = count + 1
    end
    assert.equal(18, count)
  end)

  it("has the parameters and rates of the library", function()
    for name in ("sgd nag signum ftml lbsgd dcasgd sgld adam adamw adamax nadam adagrad adadelta rmsprop ftrl lamb lion test"):gmatch("%S+") do
      local made = optimizer.create(name)
      -- the message lists all parameters, the optimizer's own before the common ones
      local listed = failure_of(polyverso.kv_optimizer_rate, made.kind .. " no_such_parameter=1", 1).text:match("it has (.-) wd=")
      local rate = tonumber(listed:match("learning_rate=(%S+)"))
      assert.equal(rate, polyverso.kv_optimizer_rate(tostring(made), 1))
      for parameter, default in listed:gmatch("([%w_]+)=(%S+) %(") do
        optimizer.create(name, {[parameter] = tonumber(default) or default}) -- raises an error for an unknown parameter
      end
    end
  end)

  it("has states that a file in memory can keep", function()
    local kept = {tensor.range(3, 1), tensor.zeros({2, 0}, "f64")}
    local file = polyverso.kv_encode_states("of a test", '{"w": [0, 1]}', kept)
    local about, handles = polyverso.kv_decode_states("of a test", {mv_tensor = file})
    assert.equal('{"w": [0, 1]}', about)
    assert.equal(2, #handles)
    for i, handle in ipairs(handles) do
      assert.equal(tostring(kept[i]), polyverso.mv_tensor_text(handle))
      polyverso.mv_tensor_free(handle)
    end
    assert.matches('"of a test"', failure_of(polyverso.kv_decode_states, "another", {mv_tensor = file}).text)
    assert.matches("damaged", failure_of(polyverso.kv_decode_states, "of a test", "abc").text)
    polyverso.mv_tensor_free(file)
  end)

  it("follows a schedule", function()
    local kv, last = kvstore.create("local"), 0
    kv:init("w", zeros())
    local schedule = lr_scheduler.FactorScheduler{step = 2, factor = 0.5, base_lr = 1}
    assert.equal(1, schedule(2))
    assert.equal(0.5, schedule(3))
    kv:set_optimizer(optimizer.SGD{lr_scheduler = schedule})
    for _, step in ipairs{1, 1, 0.5, 0.5, 0.25, 0.25} do
      local a = zeros()
      kv:pushpull("w", -ones(), a)
      assert.is_true(math.abs(a:get(0, 0) - last - step) < 1e-6)
      last = a:get(0, 0)
    end
  end)

  it("becomes text", function()
    local schedule = lr_scheduler.MultiFactorScheduler{step = {100, 200}, factor = 0.1, warmup_steps = 10}
    local text = tostring(optimizer.SGD{momentum = 0.9, wd = 1e-4, lazy_update = false, lr_scheduler = schedule})
    assert.equal("mx.sgd base_lr=0.01 factor=0.1 lazy_update=0 lr_scheduler=multifactor momentum=0.9 step=100:200 "
      .. "warmup_steps=10 wd=0.0001", text)
    assert.equal("mx.adam base_lr=0.5 learning_rate=0.001 lr_scheduler=poly max_update=9",
      tostring(optimizer.Adam{lr_scheduler = lr_scheduler.PolyScheduler{max_update = 9, base_lr = 0.5}}))
    assert.matches("no parameter 'momentun'", failure_of(optimizer.SGD, {momentun = 0.9}).text)
    assert.matches("no parameter 'steps'", failure_of(lr_scheduler.FactorScheduler, {steps = 9}).text)
    for _, wrong in ipairs{{step = 0}, {step = 2, factor = 2}, {}, {step = 1.5}} do
      assert.equal(capi.MV_EINVAL, failure_of(lr_scheduler.FactorScheduler, wrong).code)
    end
    assert.equal(capi.MV_EINVAL, failure_of(lr_scheduler.MultiFactorScheduler, {step = {3, 3}}).code)
    assert.equal(capi.MV_EINVAL, failure_of(lr_scheduler.PolyScheduler, {max_update = 0}).code)
  end)

  it("knows which named parameters decay", function()
    local made = optimizer.SGD{wd = 0.1, param_idx2name = {[0] = "fc_weight", "fc_bias", "bn_gamma", "bn_beta"}}
    local function factors(key) return {made:factors_of(key)} end
    assert.same({{1, 1}, {1, 0}, {1, 1}, {1, 0}}, {factors(0), factors(1), factors(2), factors(3)})
    made:set_lr_mult{fc_bias = 2, [0] = 0.5}
    made:set_wd_mult{bn_beta = 0.25}
    assert.same({{0.5, 1}, {2, 0}, {1, 0.25}, {2, 0}}, {factors(0), factors(1), factors(3), factors("fc_bias")})
  end)
end)
