-- Torch's tensors as values of the core's modules: groups, strategies, gossip and stores.

require("torch")
local distlearn = require("polyverso.distlearn")
local gossip = require("polyverso.gossip")
local kvstore = require("polyverso.kvstore")
local ranks = require("spec.ranks")
local tensor = require("polyverso.tensor")

describe("a group", function()
  local one = ranks.alone(before_each, after_each)

  it("takes tensors, with gaps too", function()
    for rank, line in ipairs(ranks.lines(3, [[
      require("torch")
      local polyverso, tensor = require("polyverso"), require("polyverso.tensor")
      local node = polyverso.init()
      local group = require("polyverso.group").open(node)
      local rank = group.rank
      local gathered = group:allgather(torch.FloatTensor(2):fill(rank))
      local wide = torch.range(0, 11):resize(6, 2)
      local average, most = group:reduce_scatter(wide, {op = "avg"}), group:reduce_scatter(wide:t():contiguous():t(), {op = "max"})
      local turned = torch.zeros(2, 3):t()
      turned:fill(rank)
      group:allreduce_custom({turned}, function(mine, theirs) return {mine[1] + theirs[1]} end)
      print(("%s %d %d %d %d"):format(torch.type(gathered), gathered:sum(), average:sum(), most:sum(), turned:sum()))
      group:close()
      node:shutdown()
    ]])) do
      local sum = 4 * 4 * (rank - 1) + 6
      assert.equal(("torch.FloatTensor 6 %d %d 18"):format(sum, sum), line)
    end
  end)

  it("takes them beside the core's", function()
    assert.equal(1, one.group:allreduce_many({tensor.ones({2}), torch.ones(2)}))
  end)
end)

describe("strategies", function()
  local one = ranks.alone(before_each, after_each)

  it("step through tensors on several ranks", function()
    local lines = ranks.lines(3, [[
      require("torch")
      local polyverso, distlearn = require("polyverso"), require("polyverso.distlearn")
      local node = polyverso.init()
      local group = require("polyverso.group").open(node)
      local sgd = distlearn.AllReduceSGD(group)
      local params = {a = {torch.FloatTensor(2, 2):fill(group.rank + 5)}}
      sgd:synchronize_parameters(params)
      local grads = {a = {torch.FloatTensor(2, 2):fill(group.rank)}}
      sgd:sum_and_normalize_gradients(grads)
      print(("%g %g"):format(params.a[1]:sum(), grads.a[1]:sum()))
      sgd:close()
      group:close()
      node:shutdown()
    ]])
    assert.same({"20 4", "20 4", "20 4"}, lines)
  end)

  it("change tensors with gaps in place", function()
    local ea = distlearn.AllReduceEA(one.group, 1, 0.5)
    local turned = torch.zeros(2, 3):t()
    local params = {tensor.zeros({3}), {x = tensor.zeros({1}, "f16"), turned}}
    ea:synchronize_parameters(params)
    params[1]:add_(4)
    turned:fill(6)
    ea:average_parameters(params, {timeout = 5})
    assert.same({2, 2, 2}, params[1]:to_list())
    assert.equal(18, turned:sum())
    local centre = {tensor.zeros({3}), {x = tensor.zeros({1}, "f16"), torch.zeros(3, 2)}}
    ea:read_center(centre)
    assert.same({2, 2, 2}, centre[1]:to_list())
    assert.equal(18, centre[2][1]:sum())
    ea:close()
  end)
end)

describe("nodes that gossip", function()
  local function lone(name)
    return gossip.open_text(("nodes: [{name: %s, host: 127.0.0.1, port: 0}]\ntimeout_ms: 20000\n"):format(name), name)
  end
  local function port_of(node) return tonumber(node:state().address:match(":(%d+)$")) end

  it("refuse tensors of other dimensions", function()
    local one, two = lone("one"), lone("two")
    one:add_peer("two", "127.0.0.1", port_of(two))
    local own = torch.FloatTensor(2, 3):fill(1)
    two:publish({torch.FloatTensor(3, 2):fill(3)}, 1)
    one:update_send({own}, 1)
    assert.equal(0, one:update_wait({own}, 1))
    assert.truthy(one:peers()[1].problem:find("dimensions of array 0", 1, true))
    two:publish({torch.FloatTensor(2, 3):fill(3)}, 1)
    one:update_send({own}, 1)
    assert.equal(0.5, one:update_wait({own}, 1))
    assert.equal(2, own[2][3])
    one:close()
    two:close()
  end)
end)

describe("a store", function()
  local kv
  before_each(function() kv = kvstore.create("local") end)

  it("takes tensors as values", function()
    kv:init("w", torch.FloatTensor(2, 3):fill(2))
    local out = torch.FloatTensor(2, 3)
    kv:pull("w", out)
    assert.equal(12, out:sum())
    kv:push("w", {out, out:clone():mul(2)})
    kv:pull("w", out)
    assert.equal(36, out:sum())
    kv:init("d", torch.range(1, 4))
    local doubles = torch.DoubleTensor(4)
    kv:pull("d", doubles)
    assert.same({1, 2, 3, 4}, doubles:totable())
  end)

  it("takes tensors with gaps", function()
    local given = torch.range(1, 6):view(3, 2):t()
    kv:init("w", given)
    local room = torch.DoubleTensor(3, 4):fill(-1)
    kv:pull("w", room:narrow(2, 2, 2):t())
    assert.same({{-1, 1, 2, -1}, {-1, 3, 4, -1}, {-1, 5, 6, -1}}, room:totable())
  end)
end)
