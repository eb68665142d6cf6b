-- Random calls on random objects, closed and dropped in any order: every call succeeds or raises an error.
-- tests/capi/random_handles.c tests more of it.

local distlearn = require("polyverso.distlearn")
local gossip = require("polyverso.gossip")
local polyverso = require("polyverso")
local group = require("polyverso.group")
local kvstore = require("polyverso.kvstore")
local tensor = require("polyverso.tensor")

describe("random calls", function()
  it("succeed or raise", function()
    local seed = tonumber(os.getenv("POLYVERSO_TEST_SEED") or 1)
    math.randomseed(seed)
    local settings = {timeout_ms = 200, gate_timeout_ms = 200, log_level = "off"}
    local node = polyverso.init(settings)
    local places = {}
    local kinds = {"node", "table", "request", "tensor", "store", "group", "strategy", "gossip"}
    local alone = node:size() == 1
    for _, kind in ipairs(kinds) do places[kind] = {} end
    local ones = {}
    for i = 1, 64 do ones[i] = 1 end

    local function any(list) return list[math.random(#list)] end
    local function pick(kind) return places[kind][math.random(6)] or places[any(kinds)][math.random(6)] end
    local function put(kind, made) places[kind][math.random(6)] = made end
    local function name() return any{"a", "b", "c", "d", "e", "f"} end
    local function seldom(call) if math.random() < 0.1 then call() end end

    local calls = {
      table = function()
        local t, rows = pick("table"), {math.random(0, 9), math.random(0, 9)}
        any{
          function() put("table", node:array{size = 64, name = name()}) end,
          function() put("table", node:matrix{rows = 8, cols = 8, name = name()}) end,
          function() put("table", node:keyvalue{cols = 2, name = name()}) end,
          function() put("table", node:open(name())) end,
          function() t:add(ones) end,
          function() t:get() end,
          function() t:info() end,
          function() put("request", t:add(ones, {async = true})) end,
          function() put("request", t:get{async = true}) end,
          function() put("request", t:get{async = true, rows = rows}) end,
          function() if math.random() < 0.2 then t:close() end end,
          function() if math.random() < 0.2 then t:destroy() end end,
        }()
      end,
      request = function()
        local r = pick("request")
        any{function() r:done() end, function() r:wait(0.01) end, function() r:cancel() end, function() put("request", nil) end}()
      end,
      tensor = function()
        local t = pick("tensor")
        any{
          function() put("tensor", tensor.zeros{8, 8}) end,
          function() put("tensor", t + 1) end,
          function() put("tensor", t[1]) end,
          function() put("tensor", t:sum()) end,
          function() t:free() end,
        }()
      end,
      store = function()
        local s, key = pick("store"), math.random(0, 3)
        any{
          function() put("store", kvstore.create(any{"local", "dist_async", "dist_sync"})) end,
          function() s:init(key, tensor.zeros{8}) end,
          function() s:push(key, tensor.zeros{8}) end,
          function() s:pull(key, tensor.zeros{8}) end,
          function() put("request", s:pull(key, tensor.zeros{8}, {async = true})) end,
        }()
      end,
      group = function()
        local g = pick("group")
        any{
          function() put("group", group.open(node)) end,
          function() g:allreduce(tensor.zeros{8}) end,
          function() g:barrier() end,
          function() if math.random() < 0.3 then g:close() end end,
        }()
      end,
      strategy = function()
        local g, s = pick("group"), pick("strategy")
        any{
          function() put("strategy", distlearn.AllReduceSGD(g)) end,
          function() put("strategy", distlearn.AllReduceEA(g, 2, 0.1)) end,
          function() put("strategy", distlearn.AsyncEA(pick("table"), 1, 0.1)) end,
          function() s:average_parameters{tensor.ones{64}} end,
          function() s:sum_gradients{tensor.ones{64}} end,
          function() s:meter() end,
          function() s:close() end,
          function() put("strategy", nil) end,
        }()
      end,
      gossip = function()
        local g = pick("gossip")
        any{
          function() seldom(function() put("gossip", gossip.open_text("nodes: [{name: a, host: 127.0.0.1, port: 0}]\ntimeout_ms: 20", "a")) end) end,
          function() g:publish({ones}, 1) end,
          function() g:fetch_start() end,
          function() g:fetch_wait(1) end,
          function() g:average(ones) end,
          function() g:state() end,
          function() seldom(function() g:close() end) end,
          function() put("gossip", nil) end,
        }()
      end,
      node = function()
        local n = pick("node")
        any{
          function() put("request", node:barrier{async = true}) end,
          function() node:poll() end,
          function() seldom(function() if alone then put("node", polyverso.open_node(settings)) end end) end,
          function() put("table", n:array{size = 64, name = name()}) end,
          function() seldom(function() if n ~= node then n:shutdown() end end) end,
          collectgarbage,
        }()
      end,
    }
    local order = {"table", "table", "table", "request", "request", "tensor", "tensor", "store", "group", "strategy", "gossip", "node"}
    local well, raised, count = 0, 0, tonumber(os.getenv("POLYVERSO_TEST_CALLS") or 20000)
    for _ = 1, count do
      local ended, failure = pcall(calls[any(order)])
      if ended then well = well + 1 else raised = raised + 1 end
      assert(ended or type(failure) ~= "table" or failure.name ~= "MV_EINTERNAL", "seed " .. seed)
    end
    assert.is_true(well > count / 20, ("%d succeeded, %d raised"):format(well, raised))
    local nodes = places.node
    places = nil
    for _, each in pairs(nodes) do pcall(each.shutdown, each) end
    collectgarbage()
    collectgarbage()
    local ended, failure = pcall(node.shutdown, node)  -- may raise the error of a dropped call
    assert.is_true(ended or failure.name ~= "MV_EINTERNAL")
    assert.is_false((pcall(node.rank, node)))
  end)
end)
