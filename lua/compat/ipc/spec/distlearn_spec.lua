-- distlearn's modules, with threads of one process as nodes.

require("torch")
local ipc = require("libipc")
local NullTree = require("ipc.NullTree")

-- Runs body(tree, extra) on `count` nodes; this thread is the first node. Returns the results of all nodes.
local function on_nodes(count, body, extra)
  local server, port = ipc.server("127.0.0.1")
  local others = ipc.map(count - 1, function(count, port, body, extra, id)
    local client = require("libipc").client("127.0.0.1", port)
    local tree = require("ipc.Tree")(id + 1, count, 2, nil, client, "127.0.0.1")
    client:close()
    return body(tree, extra)
  end, count, port, body, extra)
  local tree = require("ipc.Tree")(1, count, 2, server, nil, "127.0.0.1", port)
  local own = body(tree, extra)
  server:close()
  return {own, others:join()}
end

describe("AllReduceSGD", function()
  it("sums, and divides by those that contributed", function()
    local results = on_nodes(3, function(tree)
      local allReduceSGD = require("distlearn.AllReduceSGD")(tree)
      local params = {w = torch.Tensor(2):fill(tree.nodeIndex), list = {torch.FloatTensor(1):fill(tree.nodeIndex)}}
      allReduceSGD.synchronizeParameters(params) -- no node has made a step: the first node's parameters
      local seen = {params.w:sum(), params.list[1][1]}
      for _ = 1, tree.nodeIndex do
        local grads = {w = torch.Tensor(2):fill(tree.nodeIndex), list = {torch.FloatTensor(1):fill(1)}}
        allReduceSGD.sumAndNormalizeGradients(grads)
        params.w:add(grads.w)
        seen[#seen + 1] = grads.w[1]
      end
      allReduceSGD.synchronizeParameters(params)
      local sum = torch.ones(2)
      allReduceSGD.sumGradients(sum)
      seen[#seen + 1] = sum[2]
      seen[#seen + 1] = params.w[1]
      return seen
    end)
    assert.same({2, 1, 2, 3, 1 + 2 + 2.5 + 3}, results[1])
    assert.same({2, 1, 2, 2.5, 3, 1 + 2 + 2.5 + 3}, results[2])
    assert.same({2, 1, 2, 2.5, 3, 3, 1 + 2 + 2.5 + 3}, results[3])
  end)

  it("is told of other names and sizes", function()
    local results = on_nodes(2, function(tree)
      local first = tree.nodeIndex == 1
      local allReduceSGD = require("distlearn.AllReduceSGD")(tree)
      local function outcome(grads)
        local summed, failure = pcall(allReduceSGD.sumGradients, grads)
        return summed and "fine" or failure.name
      end
      return {
        outcome(first and {a = torch.ones(2)} or {b = torch.ones(2)}),
        outcome(first and {w = torch.ones(2, 3)} or {w = torch.ones(3, 2)}),
        outcome({w = torch.ones(2, 3), b = {torch.ones(2), torch.FloatTensor()}}),
        outcome(torch.ones(2)),
      }
    end)
    for _, seen in ipairs(results) do assert.same({"MV_EDISAGREE", "MV_EDISAGREE", "fine", "fine"}, seen) end
  end)

  it("leaves all nodes with the same bits, however many steps each makes", function()
    for round = 1, 3 do
      local results = on_nodes(4, function(tree, round)
        local allReduceSGD = require("distlearn.AllReduceSGD")(tree)
        local grads, params = {torch.Tensor(7):fill(0)}, {torch.Tensor(7):fill(0)}
        torch.manualSeed(10 * round + tree.nodeIndex)
        for _ = 1, 5 do
          local steps = torch.random(0, 9) -- some nodes may make none
          for _ = 1, steps do
            grads[1]:uniform()
            allReduceSGD.sumAndNormalizeGradients(grads)
            params[1]:add(grads[1])
          end
          allReduceSGD.synchronizeParameters(params)
        end
        return params[1]
      end, round)
      for i = 2, 4 do assert.same(results[1]:totable(), results[i]:totable()) end
    end
  end)

  it("needs no others", function()
    local allReduceSGD = require("distlearn.AllReduceSGD")(NullTree())
    local grads = torch.Tensor{3, 4}
    allReduceSGD.synchronizeParameters(grads)
    allReduceSGD.sumAndNormalizeGradients(grads)
    assert.same({3, 4}, grads:totable())
    assert.error_matches(function() require("distlearn.AllReduceSGD")(5) end, "an ipc tree is needed")
  end)
end)

describe("AllReduceEA", function()
  it("takes numbers, also as texts, and says what is none", function()
    local AllReduceEA, tree = require("distlearn.AllReduceEA"), require("ipc.NullTree")()
    assert.error_matches(function() AllReduceEA(tree, 10) end, "alpha is nil, not a number")
    assert.error_matches(function() AllReduceEA(tree, "often", 0.2) end, "tau is often, not a number")
    local params = torch.ones(2)
    AllReduceEA(tree, "10", "0.2").synchronizeParameters(params)
    assert.equal(2, params:sum())
  end)

  it("draws nodes and centre to each other at every tau-th step", function()
    local results = on_nodes(2, function(tree)
      local allReduceEA = require("distlearn.AllReduceEA")(tree, 2, 0.25)
      local params = {torch.Tensor(1):fill(8)}
      allReduceEA.synchronizeParameters(params)
      params[1]:add(tree.nodeIndex == 1 and 4 or -8) -- 12 and 0, with the centre at 8
      allReduceEA.averageParameters(params)
      local seen = {params[1][1]}
      allReduceEA.averageParameters(params) -- d = 1 and -2; the centre becomes 7
      seen[2] = params[1][1]
      allReduceEA.averageParameters(params)
      allReduceEA.averageParameters(params) -- d = (11 - 7) / 4 and (2 - 7) / 4
      seen[3] = params[1][1]
      return seen
    end)
    assert.same({12, 11, 10}, results[1])
    assert.same({0, 2, 3.25}, results[2])
  end)

  it("keeps all nodes close to each other, however many steps each makes", function()
    local results = on_nodes(4, function(tree)
      local allReduceEA = require("distlearn.AllReduceEA")(tree, 3, 0.4)
      local params = {torch.Tensor(7):fill(0)}
      torch.manualSeed(tree.nodeIndex)
      local slower = 1.0 -- a float, because an integer of Lua 5.4 would overflow
      for _ = 1, 5 do
        for _ = 1, torch.random(45, 53) do
          params[1]:add(torch.randn(7):div(slower)) -- a random walk with decreasing steps
          allReduceEA.averageParameters(params)
          slower = slower * 2
        end
        allReduceEA.synchronizeCenter(params)
      end
      return params[1]
    end)
    for i = 2, 4 do assert.is_true(torch.abs(results[1] - results[i]):max() < 1e-6) end
  end)
end)
