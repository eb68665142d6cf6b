-- polyverso.gossip: two nodes of one process.

local gossip = require("polyverso.gossip")

local function lone(name, settings)
  return gossip.open_text(("nodes: [{name: %s, host: 127.0.0.1, port: 0}]\ntimeout_ms: 20000\n%s"):format(name, settings or ""), name)
end
local function port_of(node) return tonumber(node:state().address:match(":(%d+)$")) end

describe("two nodes", function()
  it("exchange, and keep the sum", function()
    local one, two = lone("one", "exchange: symmetric"), lone("two", "exchange: symmetric")
    one:add_peer("two", "127.0.0.1", port_of(two))
    two:add_peer("one", "127.0.0.1", port_of(one))
    local own, other = {0, 0, 0}, {2, 4, 6}
    one:update_send({own}, 1)
    two:update_send({other}, 1)
    assert.equal(0.5, one:update_wait({own}, 1))
    assert.equal(0.5, two:update_wait({other}, 1))
    assert.same({1, 2, 3}, own)
    assert.same({1, 2, 3}, other)
    assert.equal(1, one:state().exchanges.valid)
    assert.truthy(one:metrics():find('polyverso_gossip_exchanges_total{node="one",end="valid"} 1', 1, true))
    assert.has_error(function() gossip.status("/no/such/file.yaml") end)
    one:close()
    two:close()
  end)

  it("leave nothing behind after a bad loss, and have clocks to be set", function()
    local one = lone("one")
    assert.has_error(function() one:publish({{1, 2}}, nil) end)
    assert.has_error(function() one:publish({}, 1) end)
    one:set_clock(7)
    one:publish({{1, 2}}, 1)
    assert.equal(8, one:state().clock)
    one:close()
  end)

  it("give their ports back when they are forgotten", function()
    local port
    do port = port_of(lone("one")) end
    collectgarbage()
    collectgarbage()
    local again = gossip.open_text(("nodes: [{name: a, host: 127.0.0.1, port: %d}]"):format(port), "a")
    again:close()
  end)

  it("average in place", function()
    local one, two = lone("one"), lone("two")
    one:add_peer("two", "127.0.0.1", port_of(two))
    local own, other = {0, 0, 0}, {2, 4, 6}
    two:update_send({other}, 1)
    assert.is_true(one:update_send({own}, 1))
    assert.is_true(one:update_send({own}, 1))  -- the fetch continues
    assert.equal(0.5, one:update_wait({own}, 1))
    assert.same({1, 2, 3}, own)
    assert.is_nil(one:fetch_wait(1))
    assert.equal(0.5, one:state().factor)
    assert.equal(1, #one:peers())
    assert.equal(1, one:peers()[1].fetched)
    assert.truthy(tostring(one):find("score 1000", 1, true))
    assert.has_error(function() one:publish({own, "text", 1}, 1) end)
    assert.has_error(function() one:publish({}, 1) end)  -- an error drops the arrays that were added before it
    one:remove_peer("two")
    assert.has_error(function() one:remove_peer("two") end)
    one:close()
    two:close()
    assert.has_error(function() one:fetch_start() end)
  end)
end)
