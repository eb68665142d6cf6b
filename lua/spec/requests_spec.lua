-- Dropped requests: their handles and buffers are released.

local polyverso = require("polyverso")
local kvstore = require("polyverso.kvstore")
local tensor = require("polyverso.tensor")

--- The slot of a request's handle. Slots are reused, so their number is that of the requests alive at the same time.
local function slot(request) return request.handle % 2 ^ 24 end

describe("a dropped request", function()
  local node, array
  before_each(function()
    node = polyverso.init()
    array = node:array{size = 4}
  end)
  after_each(function() node:shutdown() end)

  local function most_of(count, call)
    local most = 0
    collectgarbage()
    for i = 1, count do
      most = math.max(most, slot(call(i)))
      if i % 1000 == 0 then collectgarbage() end -- Lua 5.1's proxies are too small to trigger the collector soon
    end
    return most
  end

  it("does not change the text of an error that is being raised", function()
    local function fails() pcall(array.add, array, {1, 2, 3, 4, 5, 6, 7, 8, 9}) end
    local function drop_one()
      if not newproxy then return setmetatable({}, {__gc = fails}) end
      getmetatable(newproxy(true)).__gc = fails
    end
    local pause = collectgarbage("setpause", 100)
    for _ = 1, 20000 do
      drop_one()
      local ok, raised = pcall(array.add, array, {1, 2, 3, 4, 5})
      assert.is_false(ok)
      if not tostring(raised):find(" 5 ", 1, true) then error("the text is " .. tostring(raised)) end
    end
    collectgarbage("setpause", pause)
  end)

  it("goes on, if it is an add", function()
    assert.is_true(most_of(200000, function() return array:add({1, 1, 1, 1}, {async = true}) end) < 20000)
    collectgarbage()
    node:barrier()
    assert.equal(200000, array:get()[1])
    assert.same({}, node:poll())
  end)

  it("keeps a get's table until it is over", function()
    assert.is_true(most_of(20000, function() return array:get{async = true} end) < 20000)
    collectgarbage()
    collectgarbage()
    array:get{async = true}:wait()
    assert.is_true(slot(node:barrier{async = true}) < 20000)
  end)

  it("may be of any kind", function()
    local kv = kvstore.create("dist_async")
    kv:init(1, tensor.zeros{8})
    local out = tensor.zeros{8}
    for _ = 1, 300 do
      array:set({1, 1, 1, 1}, {async = true})
      node:barrier{async = true}
      kv:pull(1, out, {async = true})
    end
    collectgarbage()
    collectgarbage()
    node:barrier()
    local last = node:barrier{async = true}
    assert.is_true(slot(last) < 2000)
    last:wait()
    array:add({1, 1, 1, 1}, {async = true}) -- this request outlives its node
  end)
end)
