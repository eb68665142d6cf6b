-- polyverso.gossip: two nodes of one process.

local gossip = require("polyverso.gossip")

local function lone(name)
  return gossip.open_text(("nodes: [{name: %s, host: 127.0.0.1, port: 0}]\ntimeout_ms: 20000"):format(name), name)
end

describe("two nodes", function()
  it("average in place", function()
    local one, two = lone("one"), lone("two")
    one:add_peer("two", "127.0.0.1", tonumber(two:state():match("127%.0%.0%.1:(%d+)")))
    local own, other = {0, 0, 0}, {2, 4, 6}
    two:update_send({other}, 1)
    assert.is_true(one:update_send({own}, 1))
    assert.equal(0.5, one:update_wait({own}, 1))
    assert.same({1, 2, 3}, own)
    assert.is_nil(one:fetch_wait(1))
    assert.truthy(one:state(true):find('"fetched":1', 1, true))
    one:remove_peer("two")
    assert.has_error(function() one:remove_peer("two") end)
    one:close()
    two:close()
    assert.has_error(function() one:fetch_start() end)
  end)
end)
