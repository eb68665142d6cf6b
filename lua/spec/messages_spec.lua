-- What errors and tostring() say: Lua's names, the script's line, what is closed, and guesses for misspelt options.

local gossip = require("polyverso.gossip")
local group = require("polyverso.group")
local kvstore = require("polyverso.kvstore")
local optimizer = require("polyverso.optimizer")
local polyverso = require("polyverso")
local ranks = require("spec.ranks")
local tensor = require("polyverso.tensor")

local function failure_of(f, ...)
  local ended, failure = pcall(f, ...)
  assert.is_false(ended, "nothing was raised")
  return failure
end

local function says(pattern, f, ...)
  local failure = failure_of(f, ...)
  assert.matches(pattern, failure.text)
  assert.is_nil(failure.text:find("[mk]v_%l"))
  assert.matches("messages_spec.lua:%d+: $", failure.where)
  return failure
end

-- What a script prints to both outputs, as the interpreter runs it.
local function output_of(script)
  local path = os.tmpname()
  local file = assert(io.open(path, "w"))
  file:write(script)
  file:close()
  local pipe = assert(io.popen(("%s %s 2>&1"):format(ranks.INTERPRETER, path)))
  local text = pipe:read("*a")
  pipe:close()
  os.remove(path)
  return text, path
end

describe("an error that nobody catches", function()
  it("is printed with the script's line", function()
    for _, script in ipairs{
      "require('polyverso').init{no_such = 1}",
      "local polyverso = require('polyverso')\nlocal co = coroutine.wrap(function() polyverso.init{no_such = 1} end)\nco()",
      "local polyverso = require('polyverso')\npcall(error)\npolyverso.mv_init({no_such = 1})",
      "require('polyverso.gossip').open_text('nodes: [', 'w1')",
      "local kv = require('polyverso.kvstore').create('local')\nkv:set_updater(function() kv.missing() end)\nkv:set_updater(3)",
    } do
      local text, path = output_of(script)
      assert.is_nil(text:find("not a string", 1, true), text)
      assert.truthy(text:find(path .. ":", 1, true), text)
      assert.matches("MV_E%u+: ", text)
    end
  end)

  it("is printed when an updater's error has passed through pcall", function()
    local text = output_of([[
      local kv, tensor = require('polyverso.kvstore').create('local'), require('polyverso.tensor')
      kv:init(1, tensor.ones({2}))
      kv:set_updater(function(_, merged) merged:reshape({7}) end)
      kv:push(1, tensor.ones({2}))
    ]])
    assert.matches("MV_ESHAPE: tensor:reshape", text)
    assert.is_nil(text:find("not a string", 1, true))
  end)
end)

describe("a caught error", function()
  it("is a table, which last_error() returns, too", function()
    local failure = failure_of(polyverso.init, {no_such = 1})
    assert.same({"MV_EINVAL", polyverso.MV_EINVAL}, {failure.name, failure.code})
    assert.equal(failure, polyverso.last_error())
    assert.equal("failed: " .. tostring(failure), "failed: " .. failure)
    local co = coroutine.create(function() polyverso.init{no_such = 1} end)
    assert.equal("MV_EINVAL", select(2, coroutine.resume(co)).name)
    local _, seen = xpcall(function() polyverso.init{no_such = 1} end, function(raised) return raised.name end)
    assert.equal("MV_EINVAL", seen)
  end)
end)

describe("messages", function()
  local node, t
  before_each(function()
    node = polyverso.init{log_level = "error", sync = true}
    t = node:matrix{rows = 3, cols = 2, name = "weights"}
  end)
  after_each(function() node:shutdown() end)

  it("name Lua's functions", function()
    says("^table:add: data%[2%] is a boolean", t.add, t, {1, true, 3, 4, 5, 6})
    says("^table:add: rows%[1%] is a string", t.add, t, {1}, {rows = {"0"}})
    says("^node:matrix: ", node.matrix, node, {rows = 0, cols = 2})
    says("^node:array: ", node.array, node, {size = 0})
    says("^polyverso.init: option nodes", polyverso.init, {nodes = "many"})
    says("^table:get: 77 is not a handle of this library; expected a table", polyverso.mv_table_get, 77, {})
    says("^polyverso.init: ", polyverso.init, {no_such = 1})
    local kv = kvstore.create("local")
    says("call store:init%(%) first", kv.push, kv, "w", tensor.ones({1}))
    says("^tensor:reshape: ", tensor.ones({2}).reshape, tensor.ones({2}), {3})
    says("^group.open: ", group.open, node, {7})
    local named = node:array{size = 1, name = "mv_weights"}
    assert.matches('"mv_weights"', failure_of(named.add, named, {1, 2}).text)
  end)

  it("tell the colon from the dot", function()
    says("table:add%(%) was called on a plain Lua table, not on a table: methods are called with a colon, table:add%(%.%.%.%)", t.add, {1, 2})
    says("table:get%(%) was called on nothing", t.get)
    says("node:barrier%(%) was called on nothing", node.barrier)
    says("node:open%(%) was called on a string", node.open, "weights")
    says("store:push%(%) was called on a string", kvstore.create("local").push, "w", tensor.ones({1}))
    says("tensor:sum%(%) was called on nothing", tensor.ones({1}).sum)
    local alone = group.open(node)
    local sgd = require("polyverso.distlearn").AllReduceSGD(alone)
    says("strategy:sum_gradients%(%) was called on a plain Lua table, not on a strategy", sgd.sum_gradients, {tensor.ones({1})})
    says("group:allreduce%(%) was called on a plain Lua table, not on a group", alone.allreduce, tensor.ones({1}))
    sgd:close()
    alone:close()
    says("call it with a dot, polyverso.init", function() polyverso:init() end)
  end)

  it("guess what was meant", function()
    local function guesses(wrong, meant, ...) says(('%s["\'].*; did you mean "%s"%%?$'):format(wrong, meant), ...) end
    guesses("row", "rows", t.add, t, {1, 2}, {row = {0}})
    guesses("tiemout", "timeout", node.barrier, node, {tiemout = 5})
    guesses("clos", "cols", node.matrix, node, {rows = 1, clos = 2})
    guesses("sdg", "sgd", t.set_updater, t, "sdg")
    guesses("mx.adma", "mx.adam", node.array, node, {size = 1, updater = "mx.adma"})
    guesses("sinc", "sync", polyverso.init, {sinc = true})
    guesses("asnyc", "async", t.get, t, {asnyc = true})
    guesses("learning_rat", "learning_rate", optimizer.SGD, {learning_rat = 1})
    says('"admm"; did you mean "adam"', optimizer.create, "admm")
    local alone = group.open(node)
    guesses("summ", "sum", alone.allreduce, alone, tensor.ones({1}), {op = "summ"})
    alone:close()
    assert.is_nil(says('unknown option "xyz"; known: ', t.get, t, {xyz = 1}).text:find("mean"))
    says("options must be a table, such as {timeout = 5}, not a number", t.get, t, 5)
  end)

  it("refuse other values where a description is needed", function()
    says("node:array%(%) takes a table such as {size = 10}, not a number", node.array, node, 3.0)
    says("node:matrix%(%) takes a table such as {rows = 10, cols = 64}, not a tensor", node.matrix, node, tensor.ones({3, 2}))
    local alone, kv = group.open(node), kvstore.create("local")
    says("copy_of{1, 2} makes a tensor", alone.allreduce, alone, {1, 2})
    says("copy_of{1, 2} makes one", kv.init, kv, "w", {1, 2})
    says("reduce must be a function, not a number", alone.allreduce_custom, alone, tensor.ones({1}), 3)
    alone:close()
    says("an updater is needed", t.set_updater, t, 3)
    says("timeout must be a number of seconds, not a string", t.get, t, {timeout = "5"})
    says("a node is needed, or nil", kvstore.create, "local", {learning_rate = 1})
  end)

  it("say after which call an object is used", function()
    local other = polyverso.open_node()
    local a, request = other:array{size = 2, name = "biases"}, nil
    local alone, kv = group.open(other), kvstore.create("dist_async", other)
    request = a:add({1, 2}, {async = true})
    local closed = other:open("biases")
    closed:close()
    says('table "biases": table:get%(%) after close%(%)', closed.get, closed)
    other:shutdown()
    assert.equal("handle", says('table "biases": table:add%(%) after shutdown', a.add, a, {1, 2}).family)
    says('table "biases": table:info%(%) after shutdown', a.info, a)
    says("this node: node:barrier%(%) after shutdown", other.barrier, other)
    says("group:allreduce%(%) after shutdown", alone.allreduce, alone, tensor.ones({1}))
    says("the dist_async store: store:push%(%) after shutdown", kv.push, kv, 1, tensor.ones({1}))
    local late = select(2, pcall(request.wait, request))
    assert.is_true(late == nil or late.text:find("after shutdown", 1, true) ~= nil)
    local freed = tensor.ones({2})
    freed:free()
    says("tensor:sum%(%) after free%(%)", freed.sum, freed)
    t:get() -- the other node's end does not concern this one
  end)
end)

describe("tostring", function()
  it("describes objects, and what has ended them", function()
    local node = polyverso.init{sync = true, log_level = "error"}
    assert.equal("<polyverso.Node worker 0 of 1, sync, 0 tables>", tostring(node))
    local t, a = node:matrix{rows = 3, cols = 2, name = "weights"}, node:array{size = 5, name = "b", dtype = "f64"}
    local kv, s = node:keyvalue{cols = 2, name = "kv", dtype = "i64"}, node:sparse{rows = 1e9, cols = 4, name = "s"}
    assert.equal("<polyverso.Node worker 0 of 1, sync, 4 tables>", tostring(node))
    assert.equal('<polyverso.Table "weights", 3 x 2 f32>', tostring(t))
    assert.equal('<polyverso.Table "b", 5 f64>', tostring(a))
    assert.equal('<polyverso.Table "kv", keys x 2 i64, key-value>', tostring(kv))
    assert.equal('<polyverso.Table "s", 1000000000 x 4 f32, sparse>', tostring(s))
    local alone = group.open(node)
    assert.matches("^<polyverso.Group rank 0 of 1, %w+>$", tostring(alone))
    local request = t:get{async = true}
    assert.matches('^<polyverso.Request read of table "weights", %l+>$', tostring(request))
    request:wait()
    assert.equal('<polyverso.Request read of table "weights", done>', tostring(request))
    assert.equal("polyverso.kvstore dist_sync, worker 0 of 1", tostring(kvstore.create("dist_sync", node)))
    a:close()
    assert.equal('<polyverso.Table "b", 5 f64, after close()>', tostring(a))
    assert.equal("<polyverso.Node worker 0 of 1, sync, 3 tables>", tostring(node))
    alone:close()
    assert.matches("after close%(%)>$", tostring(alone))
    node:shutdown()
    assert.equal('<polyverso.Table "weights", 3 x 2 f32, after shutdown>', tostring(t))
    assert.equal("<polyverso.Node worker 0 of 1, sync, 3 tables, after shutdown>", tostring(node))
    local freed = tensor.ones({2})
    freed:free()
    assert.equal("<polyverso.Tensor after free()>", tostring(freed))
    local one = gossip.open_text("nodes: [{name: one, host: 127.0.0.1, port: 0}]", "one")
    one:close()
    assert.equal("<polyverso.Gossip one, after close()>", tostring(one))
    local alone_store = kvstore.create("local")
    alone_store:free()
    assert.equal("polyverso.kvstore local, after free()", tostring(alone_store))
  end)

  it("knows a node whose other owner goes on", function()
    local node, again = polyverso.init{log_level = "error"}, polyverso.init{log_level = "error"}
    node:shutdown()
    assert.equal("<polyverso.Node worker 0 of 1, async, 0 tables>", tostring(again))
    again:barrier()
    again:shutdown()
    assert.equal("<polyverso.Node worker 0 of 1, async, 0 tables, after shutdown>", tostring(node))
  end)
end)
