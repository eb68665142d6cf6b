-- Nodes, tables and requests.

local failure_of = require("spec.failures").of
local polyverso = require("polyverso")

describe("polyverso", function()
  local node

  before_each(function() node = polyverso.init{sync = true, log_level = "error"} end)
  after_each(function() node:shutdown() end)

  it("knows its place", function()
    assert.same({0, 1, 0, 1, 0, 1}, {
      node:rank(), node:size(), node:worker_id(), node:num_workers(), node:server_id(), node:num_servers(),
    })
    assert.is_true(node:is_master())
    assert.is_true(node:is_sync())
    assert.is_true(node:event_fd() >= 0)
    node:barrier()
    node:barrier{timeout = 5}
  end)

  it("shares matrices", function()
    local m = node:matrix{rows = 3, cols = 2, name = "m", init = {{1, 2}, {3, 4}, {5, 6}}}
    assert.same({{1, 2}, {3, 4}, {5, 6}}, m:get())
    m:add{{1, 1}, {1, 1}, {1, 1}}
    m:add({1, 1, 1, 1, 1, 1}, {wait = false})
    m:add({{10, 10}, {20, 20}}, {rows = {1, 1}})
    assert.same({{35, 36}, {3, 4}}, m:get{rows = {1, 0}})
    m:set({{0, 0}}, {rows = {2}})
    assert.same({{3, 4}, {35, 36}, {0, 0}}, node:open("m"):peek{timeout = 5})
    assert.truthy(node:tables():find('"m"', 1, true))
    assert.equal(24, m:info().bytes)
    m:close()
    assert.equal("handle", failure_of(m.get, m).family)
    node:open("m"):destroy()
    assert.equal("MV_ENOTFOUND", failure_of(node.open, node, "m").name)
  end)

  it("shares arrays of doubles", function()
    local a = node:array{size = 3, dtype = "f64", init = {0.1, 0.2, 0.3}}
    a:add{1, 1, 1}
    assert.same({1.1, 1.2, 1.3}, a:get())
    assert.same({1.3}, a:get{rows = {2}})
    local out = {0, 0, 0}
    assert.equal(out, a:get{out = out})
    assert.same({1.1, 1.2, 1.3}, out)
    assert.truthy(failure_of(node.array, node, {size = 3, dtype = "i16"}).text:find("i16"))
  end)

  it("refuses what does not fit", function()
    local a = node:array{size = 2, reject_nonfinite = true}
    assert.equal("MV_ESHAPE", failure_of(a.add, a, {1}).name)
    assert.equal("MV_EDTYPE", failure_of(a.add, a, nil).name)
    assert.equal("MV_ERANGE", failure_of(a.get, a, {rows = {2}}).name)
    assert.equal("MV_ENONFINITE", failure_of(a.add, a, {1, math.huge}).name)
    assert.equal("MV_EINVAL", failure_of(node.array, node, {length = 3}).name)
    local misspelt = failure_of(function() a:add({1}, {row = {1}}) end)
    assert.truthy(tostring(misspelt):find("polyverso_spec.lua:%d+: MV_EINVAL: .*row"))
    assert.same({0, 0}, a:get())
  end)

  it("has requests", function()
    local m = node:matrix{rows = 1, cols = 2}
    m:add({1, 2}, {async = true}):wait(5)
    local get = m:get{async = true}
    assert.same({{1, 2}}, get:wait())
    assert.is_true(get:done())
    local barrier = node:barrier{async = true}
    while not barrier:done() do end
    barrier:wait()
    local cancelled = m:get{async = true}
    cancelled:cancel()
    assert.equal("MV_ECANCELED", failure_of(cancelled.wait, cancelled).name)
    assert.same({}, node:poll(4, 0.001))
  end)

  it("has further nodes", function()
    local other = polyverso.open_node()
    assert.is_false(other:is_sync())
    other:shutdown()
    assert.equal("MV_EHANDLE", failure_of(other.rank, other).name)
  end)
end)

describe("Ctrl-C", function()
  it("ends a wait", function()
    local interpreter = 0
    while arg[interpreter - 1] do interpreter = interpreter - 1 end
    local script = "require('polyverso').init{master = '127.0.0.1:1', rank = 1, nodes = 2, log_level = 'off'}"
    local command = ("timeout --preserve-status -s INT 0.5 %s -e \"%s\" 2>&1; echo status $?")
    local started = os.time()
    local output = io.popen(command:format(arg[interpreter], script)):read("*a")
    assert.truthy(output:find("status [1-9]"), output)
    assert.is_nil(output:find("error in error handling", 1, true))
    assert.is_true(os.time() - started < 10)
  end)
end)
