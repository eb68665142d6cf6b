-- What stores do with updaters' results, and with parameters beside a name.

local failure_of = require("spec.failures").of
local kvstore = require("polyverso.kvstore")
local polyverso = require("polyverso")
local tensor = require("polyverso.tensor")

local function list_of(kv, key, count)
  local out = tensor.zeros({count or 2})
  kv:pull(key, out)
  return out:to_list()
end

describe("a store's updater", function()
  local kv
  before_each(function()
    kv = kvstore.create("local")
    kv:init("w", tensor.copy_of({1, 2}))
  end)
  after_each(function() kv:free() end)

  it("returns the new value, or changes the stored one", function()
    kv:set_updater(function(_, merged, stored) return stored + merged end)
    kv:push("w", tensor.copy_of({10, 20}))
    assert.same({11, 22}, list_of(kv, "w"))
    kv:set_updater(function(_, merged, stored) return stored:add_(merged) end)
    kv:push("w", tensor.copy_of({1, 1}))
    assert.same({12, 23}, list_of(kv, "w"))
    kv:set_updater(function(_, merged) return merged end)
    kv:push("w", tensor.copy_of({5, 6}))
    assert.same({5, 6}, list_of(kv, "w"))
    kv:set_updater(setmetatable({}, {__call = function(_, _, merged, stored) stored:sub_(merged) end}))
    kv:push("w", tensor.copy_of({5, 5}))
    assert.same({0, 1}, list_of(kv, "w"))
  end)

  it("returns nothing else, and nothing of another shape", function()
    for _, wrong in ipairs{5, "text", true, {1, 2}} do
      kv:set_updater(function() return wrong end)
      assert.matches('^key "w": the updater must return nothing or a tensor', failure_of(kv.push, kv, "w", tensor.ones({2})).text)
    end
    kv:set_updater(function() return tensor.ones({3}) end)
    local failure = failure_of(kv.push, kv, "w", tensor.ones({2}))
    assert.same({"MV_ESHAPE", 'key "w" holds shape (2), the updater returned (3)'}, {failure.name, failure.text})
    assert.same({1, 2}, list_of(kv, "w"))
  end)

  it("is a function", function()
    for _, wrong in ipairs{3, "sgd", true, {}, tensor.ones({1})} do
      assert.matches("updater must be a function or nil", failure_of(kv.set_updater, kv, wrong).text)
    end
    assert.matches("controller must be a function", failure_of(kvstore.set_controller, 3).text)
    kv:push("w", tensor.copy_of({7, 8})) -- replaces the value: no updater was set
    assert.same({7, 8}, list_of(kv, "w"))
    kv:set_updater(nil)
  end)
end)

describe("parameters beside a name", function()
  it("belong to an optimizer", function()
    local function after(...)
      local kv = kvstore.create("local")
      kv:init(1, tensor.copy_of({1, 1}))
      kv:set_optimizer(...)
      kv:push(1, tensor.copy_of({1, 2}))
      local list = list_of(kv, 1)
      kv:free()
      return list
    end
    assert.same({0.5, 0}, after("mx.sgd", {learning_rate = 0.5}))
    assert.same(after("mx.sgd learning_rate=0.25 wd=0.5"), after("mx.sgd", {learning_rate = 0.25, wd = 0.5}))
    assert.same(after("mx.adam learning_rate=0.5"), after("mx.adam", {learning_rate = 0.5}))
    assert.same(after("mx.adam learning_rate=0.5 lazy_update=0"), after("mx.adam learning_rate=0.5", {lazy_update = false}))
    local kv = kvstore.create("local")
    assert.matches("learning_rat", failure_of(kv.set_optimizer, kv, "mx.sgd", {learning_rat = 1}).text)
    assert.matches("must have names", failure_of(kv.set_optimizer, kv, "mx.sgd", {0.5}).text)
    assert.matches("must be a number, not a table", failure_of(kv.set_optimizer, kv, "mx.sgd", {wd = {}}).text)
    for _, wrong in ipairs{5, true, {learning_rate = 1}} do
      assert.matches("an optimizer of polyverso.optimizer is needed", failure_of(kv.set_optimizer, kv, wrong).text)
    end
    assert.matches("parameters are for", failure_of(kv.set_optimizer, kv, "mx.sgd", 0.5).text)
  end)

  it("belong to a table's updater", function()
    local node = polyverso.init{log_level = "error"}
    local t = node:array{size = 2, init = {1, 2}}
    t:set_updater("sgd", {rate = 0.5})
    t:add{1, 1}
    assert.same({0.5, 1.5}, t:get())
    t:set_updater("sgd", {rate = 0.25, async = true, timeout = 5}):wait()
    t:add{1, 1}
    assert.same({0.25, 1.25}, t:get())
    assert.matches("speed", failure_of(t.set_updater, t, "sgd", {speed = 1}).text)
    node:shutdown()
  end)

  it("belong to a codec", function()
    local kv = kvstore.create("local")
    kv:init(1, tensor.zeros({2}))
    kv:set_gradient_compression("2bit", {threshold = 2})
    kv:push(1, tensor.copy_of({3, 1}))
    assert.same({2, 0}, list_of(kv, 1))
    local function said(...) return failure_of(kv.set_gradient_compression, kv, ...).text end
    assert.matches('the codec has no type: write {type = "2bit", threshold = 1}', said({threshold = 1}), 1, true)
    assert.matches('{type = "2bit", threshold = 0.5}', said({}), 1, true)
    assert.matches("a codec is needed", said(nil))
    assert.matches("treshold", said({type = "2bit", treshold = 1}))
  end)
end)
