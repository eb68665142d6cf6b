-- ipc.Tree and its siblings, with threads of one process as nodes, used as in torch-ipc's and distlearn's scripts.

require("torch")
local ipc = require("libipc")
local native = require("polyverso.ipc")
local NullTree = require("ipc.NullTree")
local walkTable = require("ipc.utils").walkTable

-- Runs body(tree, extra) on `count` nodes; this thread is the first node. Returns the results of all nodes.
local function on_nodes(count, body, extra)
  local server, port = ipc.server("127.0.0.1")
  local others = ipc.map(count - 1, function(count, port, body, extra, id)
    local client = require("libipc").client("127.0.0.1", port)
    local tree = require("ipc.Tree")(id + 1, count, 2, nil, client, "127.0.0.1")
    client:close()
    return {body(tree, extra)}
  end, count, port, body, extra)
  local tree = require("ipc.Tree")(1, count, 2, server, nil, "127.0.0.1", port)
  local own = {body(tree, extra)}
  server:close()
  return {own, others:join()}
end

local function sum(a, b) return a + b end

describe("walkTable", function()
  it("goes through nested tables in the order of their keys", function()
    local seen = {}
    local nested = {b = 1, a = {3, 2, {x = 5}}, [2] = "two", [1] = "one"}
    walkTable(nested, function(leaf)
      seen[#seen + 1] = leaf
      if leaf == 2 then return 20 end
    end)
    assert.same({"one", "two", 3, 2, 5, 1}, seen)
    assert.equal(20, nested.a[2])
  end)
end)

describe("NullTree", function()
  it("is a tree of one", function()
    local tree = NullTree()
    assert.same({1, 1}, {tree.nodeIndex, tree.numNodes})
    assert.same({5, 1}, {tree.allReduce(5, sum)})
    assert.same({0, 0}, {tree.allReduce(nil, sum, function() return 0 end)})
    assert.equal(7, tree.scatter(7))
    assert.is_nil(tree.netStats())
    assert.equal(1, require("ipc.LocalhostTree")(1, 1).numNodes)
  end)
end)

describe("Tree", function()
  it("reduces numbers, tables of them and tensors, and counts who contributed", function()
    local results = on_nodes(4, function(tree)
      local i = tree.nodeIndex
      local number, contributors = tree.allReduce(i, function(a, b) return a + b end)
      local list = tree.allReduce({i, nested = {2 * i}}, function(a, b) return a + b end)
      local tensor = torch.DoubleTensor(3):fill(i)
      local reduced = tree.allReduce(tensor, function(a, b) return a:add(b) end)
      local made = tree.allReduce({torch.FloatTensor(2, 2):fill(i)}, function(a, b) return a + b end)
      local greatest = tree.allReduce(i, math.max)
      return i, number, contributors, list[1], list.nested[1], reduced == tensor and tensor:sum(), made[1]:sum(), greatest
    end)
    for i, result in ipairs(results) do assert.same({i, 10, 4, 10, 20, 30, 40, 4}, result) end
  end)

  it("reduces tensors with gaps in their places", function()
    for _, result in ipairs(on_nodes(2, function(tree)
      local whole = torch.zeros(3, 4)
      tree.allReduce(whole:t()[2], function(_, b) return b:fill(0):add(7) end)
      tree.allReduce(whole:narrow(2, 3, 1), function(a, b) return a:add(b):add(1) end)
      return whole:totable()
    end)) do
      assert.same({{0, 7, 1, 0}, {0, 7, 1, 0}, {0, 7, 1, 0}}, result[1])
    end
  end)

  it("goes on until all nodes are through, whoever stops first", function()
    local nodes = 4
    local results = on_nodes(nodes, function(tree)
      local function reduce(a, b) return a + b end
      local total, counts = 0, {}
      for _ = 1, tree.nodeIndex do
        local value, contributors = tree.allReduce(tree.nodeIndex, reduce)
        total, counts[#counts + 1] = total + value, contributors
      end
      local last, none = tree.allReduce(nil, reduce, function() return 0 end)
      return total + last, none, counts
    end)
    for i, result in ipairs(results) do
      local expected, counts = 0, {}
      for step = 1, i do
        counts[step] = nodes - step + 1
        for node = step, nodes do expected = expected + node end
      end
      assert.same({expected, 0, counts}, result)
    end
  end)

  it("takes the others' shape where a node that is through had another one, or none", function()
    local results = on_nodes(3, function(tree)
      local function reduce(a, b) return a:add(b) end
      local function zero(a) return a:fill(0) end
      local sums = {}
      if tree.nodeIndex > 1 then tree.allReduce(torch.ones(5), reduce) end
      if tree.nodeIndex > 2 then
        for size = 2, 4 do sums[#sums + 1] = tree.allReduce({torch.FloatTensor(size):fill(size)}, reduce)[1]:sum() end
      end
      local value, contributors = tree.allReduce(nil, reduce, zero)
      return sums, contributors, tree.nodeIndex == 2 and value:sum()
    end)
    assert.same({{}, 0, false}, results[1])
    assert.same({{}, 0, 0}, results[2])
    assert.same({{4, 9, 16}, 0, false}, results[3])
  end)

  it("calls the zero function for each leaf of each round", function()
    local results = on_nodes(2, function(tree)
      local function reduce(a, b) return a:add(b) end
      for _ = 1, 3 * (tree.nodeIndex - 1) do tree.allReduce({torch.zeros(2), torch.zeros(3)}, reduce) end
      local calls = {}
      tree.allReduce({torch.zeros(2), torch.zeros(3)}, reduce, function(leaf, i)
        calls[#calls + 1] = i
        return leaf:fill(1)
      end)
      return #calls, calls[1], calls[2]
    end)
    assert.same({{8, 1, 2}, {2, 1, 2}}, results) -- three rounds of the other node, and the last round
  end)

  it("calls it as often for a node that has no value, and hands it what the others reduce: a number, a tensor, a table", function()
    for _, result in ipairs(on_nodes(2, function(tree)
      local function add(a, b) return torch.isTensor(a) and a:add(b) or a + b end
      local seen = {}
      for _, value in ipairs{5, {5}, torch.DoubleTensor(1):fill(5)} do
        if tree.nodeIndex == 2 then
          tree.allReduce(value, add)
          tree.allReduce(nil, add, function(leaf) return leaf end)
        else
          local calls = 0
          local got = tree.allReduce(nil, add, function(leaf)
            calls = calls + 1
            return torch.isTensor(leaf) and leaf:fill(0) or 0
          end)
          seen[#seen + 1] = (torch.isTensor(got) and "tensor" or type(got)) .. calls
        end
      end
      return table.concat(seen, " ")
    end)) do
      assert.is_true(result[1] == "" or result[1] == "number2 table2 tensor2", result[1]) -- one round, and the last
    end
  end)

  it("scatters to nodes that have nothing", function()
    for _, result in ipairs(on_nodes(3, function(tree)
      local is_first = tree.nodeIndex == 1
      local got = tree.scatter(is_first and torch.FloatTensor(2, 2):fill(7) or nil)
      local place = torch.zeros(3)
      local kept = tree.scatter(tree.nodeIndex ~= 3 and {place:fill(tree.nodeIndex)} or nil)
      return torch.type(got), got:sum(), kept[1]:sum(), tree.nodeIndex == 2 and place:sum() or 3, tree.scatter(is_first and 5 or nil)
    end)) do
      assert.same({"torch.FloatTensor", 28, 3, 3, 5}, result)
    end
  end)

  it("scatters the first node's value: numbers, tensors, texts", function()
    for _, result in ipairs(on_nodes(3, function(tree)
      local tensor = torch.Tensor(4):fill(tree.nodeIndex)
      local nested = tree.scatter({tensor, {n = tree.nodeIndex}})
      return tree.scatter(tree.nodeIndex), tensor:sum(), nested[2].n, tree.scatter("text of " .. tree.nodeIndex)
    end)) do
      assert.same({1, 4, 1, "text of 1"}, result)
    end
  end)

  it("gives numbers to nodes that have none", function()
    local server, port = ipc.server("127.0.0.1")
    local others = ipc.map(3, function(port, id)
      local client = require("libipc").client("127.0.0.1", port)
      local tree = require("ipc.Tree")(id == 1 and 3 or nil, 4, 2, nil, client)
      return tree.nodeIndex, tree.numNodes
    end, port)
    local tree = require("ipc.Tree")(nil, 4, 2, server)
    assert.same({1, 4}, {tree.nodeIndex, tree.numNodes})
    local got = {others:join()}
    assert.same({3, 4}, {got[1], got[2]})
    assert.equal(6, got[3] + got[5])
    server:close()
  end)

  it("says on all nodes what does not fit", function()
    local server, port = ipc.server("127.0.0.1")
    local others = ipc.map(2, function(port)
      local client = require("libipc").client("127.0.0.1", port)
      local _, failure = pcall(require("ipc.Tree"), 2, 3, 2, nil, client)
      return tostring(failure)
    end, port)
    assert.error_matches(function() require("ipc.Tree")(1, 3, 2, server) end, "node number 2 is used twice")
    for _, failure in ipairs{others:join()} do assert.matches("node number 2 is used twice", failure) end
    server:close()
    assert.error_matches(function() require("ipc.Tree")(1, 3, 2) end, "a server, or a client")
  end)

  it("fails on all nodes where they reduce different things, or the reduction fails", function()
    for _, result in ipairs(on_nodes(2, function(tree)
      local _, disagree = pcall(tree.allReduce, torch.zeros(tree.nodeIndex), function(a) return a end)
      return tostring(disagree), (pcall(tree.allReduce, "text", function(a) return a end))
    end)) do
      assert.matches("MV_EDISAGREE", result[1])
      assert.is_false(result[2])
    end
    local failed = 0
    for _, result in ipairs(on_nodes(2, function(tree)
      return (pcall(tree.allReduce, 1, function() error("boom") end))
    end)) do
      if not result[1] then failed = failed + 1 end
    end
    assert.equal(2, failed)
  end)

  it("tells all nodes of a zero that failed, and of a value that can't be sent", function()
    local results = on_nodes(3, function(tree)
      local told = {}
      local fine, failure = pcall(tree.scatter, tree.nodeIndex == 1 and print or nil)
      told[1] = not fine and tostring(failure)
      for _ = 1, tree.nodeIndex do pcall(tree.allReduce, 1, function(a, b) return a + b end) end
      fine, failure = pcall(tree.allReduce, nil, function(a, b) return a + b end, function() error("zero failed") end)
      told[2] = not fine and tostring(failure)
      return told
    end)
    for _, result in ipairs(results) do
      assert.matches("can't be sent", result[1][1])
      assert.matches("zero failed", result[1][2])
    end
  end)

  it("prints what has travelled", function()
    local printed = {}
    local before = print
    _G.print = function(text) printed[#printed + 1] = text end
    local results = on_nodes(2, function(tree)
      tree.allReduce(1, function(a, b) return a + b end)
      if tree.nodeIndex == 1 then tree.netStats() end
    end)
    _G.print = before
    assert.equal(2, #results)
    assert.matches("node 1 of 2", printed[1])
  end)
end)

describe("trees that find each other", function()
  it("say at once what is no node of theirs", function()
    assert.error_matches(function() require("ipc.LocalhostTree")(5, 2) end, "node 5 is not in 1 .. 2")
    assert.error_matches(function() require("ipc.LocalhostTree")(0, 2) end, "node 0 is not in 1 .. 2")
    assert.error_matches(function() require("ipc.LocalhostTree")("x", 2) end, "node x is not in 1 .. 2")
    assert.error_matches(function() require("ipc.StaticTree")(3, 2, nil, nil, "127.0.0.1", 1) end, "node 3 is not in 1 .. 2")
    assert.error_matches(function() require("ipc.DiscoveredTree")(1.5, 2) end, "node 1.5 is not in 1 .. 2")
  end)

  it("by their parent's number", function()
    local ppid = native.getpid() * 10 + 1 -- a number that no other test uses
    for round = 1, 2 do
      local nodes = {ipc.map(3, function(ppid, round, id)
        local tree = require("ipc.LocalhostTree")(round == 1 and id or nil, 3, ppid)
        return tree.nodeIndex, (tree.allReduce(1, function(a, b) return a + b end))
      end, ppid, round):join()}
      assert.equal(6, nodes[1] + nodes[3] + nodes[5])
      assert.same({3, 3, 3}, {nodes[2], nodes[4], nodes[6]})
    end
    assert.is_nil(io.open(("%s/%d.localhost"):format(os.getenv("XDG_RUNTIME_DIR") or "/tmp", ppid)))
  end)

  it("at an address, or by what the first publishes", function()
    local reserved, port = native.reserve("127.0.0.1")
    local static = {ipc.map(2, function(port, id)
      local tree = require("ipc.StaticTree")(id, 2, "127.0.0.1", id == 1 and port or nil, "127.0.0.1", port)
      return (tree.allReduce(id, function(a, b) return a * b end))
    end, port):join()}
    assert.same({2, 2}, static)
    reserved:release()
    local discovered = {ipc.map(2, function(name, id)
      local queue = require("libipc").workqueue(name)
      local tree = require("ipc.DiscoveredTree")(id, 2, "127.0.0.1", nil, function(host, port)
        repeat require("libipc").sleep(0.01) until queue:read(true) == nil
        queue:write({host, port})
      end, function()
        local where
        repeat where = queue:read(true) until where
        return where[1], where[2]
      end)
      return tree.nodeIndex * 10 + (tree.allReduce(id, function(a, b) return a + b end))
    end, "discovered" .. port):join()}
    assert.same({13, 23}, discovered)
    local queue = ipc.workqueue("unnumbered" .. port)
    local unnumbered = ipc.map(1, function(name)
      local queue = require("libipc").workqueue(name)
      local found = queue:read()
      return require("ipc.DiscoveredTree")(nil, 2, "127.0.0.1", nil, error, function() return found[1], found[2] end).nodeIndex
    end, "unnumbered" .. port)
    local tree = require("ipc.DiscoveredTree")(nil, 2, "127.0.0.1", nil, function(...) queue:write({...}) end, function() end)
    assert.same({1, 2}, {tree.nodeIndex, unnumbered:join()})
    queue:close()
  end)

  it("by Slurm's variables and a file", function()
    local folder = os.tmpname()
    os.remove(folder)
    local file = os.tmpname()
    local script = assert(io.open(file, "w"))
    script:write([[
      require('torch')
      local tree = require('ipc.SlurmTree')(arg[1], 2, '127.0.0.1')
      local sum = tree.allReduce(tree.nodeIndex, function(a, b) return a + b end)
      io.write(tree.nodeIndex, ' ', sum, ' ', tree.gpu)
    ]])
    script:close()
    local running = {}
    for task = 0, 3 do
      local environment = ("SLURM_PROCID=%d SLURM_NTASKS=4 SLURM_JOB_NUM_NODES=1 SLURM_JOBID=7 SLURM_STEPID=1"):format(task)
      running[task + 1] = io.popen(("%s %s %s %s"):format(environment, arg[-1] or "luajit", file, folder))
    end
    for task, pipe in ipairs(running) do
      local index, sum, gpu = pipe:read("*a"):match("(%S+)%s+(%S+)%s+(%S+)")
      pipe:close()
      assert.same({task, 10, task < 3 and 1 or 2}, {tonumber(index), tonumber(sum), tonumber(gpu)})
    end
    os.remove(file)
    os.remove(folder)
  end)
end)

-- Node 2 runs `script` after the first all-reduce; node 1 then begins a second one. Returns what node 1 hears.
local function heard(script)
  local path = os.tmpname()
  local file = assert(io.open(path, "w"))
  file:write([[
    local tree = require("ipc.LocalhostTree")()
    local function sum(a, b) return a + b end
    tree.allReduce(1, sum)
    if tree.nodeIndex == 1 then
      local ended, failure = pcall(tree.allReduce, 1, sum)
      print("heard: " .. (ended and "a sum" or failure.text))
      os.exit(0)
    end
  ]] .. script)
  file:close()
  local command = "timeout 60 polyverso run -n 2 --keep-going --set log_level=off -- %s %s 2>&1"
  local pipe = assert(io.popen(command:format(require("spec.ranks").INTERPRETER, path)))
  local text = pipe:read("*a")
  pipe:close()
  os.remove(path)
  return text:match("%[w0%] heard: ([^\n]*)") or text
end

describe("A node's program", function()
  it("that fails tells the others its exit status", function()
    assert.matches("rank 1 of the group is lost.*ended with exit status 1", heard('error("node two broke")'))
    assert.matches("ended with exit status 3", heard("os.exit(3)"))
  end)

  it("that ends well has left", function()
    assert.matches("has left the group;", heard(""))
  end)

  it("that drops its tree has left, and goes on", function()
    assert.matches("has left the group;", heard([[
      tree = nil
      collectgarbage()
      collectgarbage()
      require("libipc").sleep(1)
      error("after that")
    ]]))
  end)

  it("ends at once with a tree of its own, and one of a thread that has ended", function()
    local path = os.tmpname()
    local file = assert(io.open(path, "w"))
    file:write([[
      local ipc = require("libipc")
      local function sum(a, b) return a + b end
      local server, port = ipc.server("127.0.0.1")
      local thread = ipc.map(1, function(port)
        local client = require("libipc").client("127.0.0.1", port)
        return require("ipc.Tree")(2, 2, 2, nil, client, "127.0.0.1").allReduce(2, function(a, b) return a + b end)
      end, port)
      local tree = require("ipc.Tree")(1, 2, 2, server, nil, "127.0.0.1", port)
      io.write(tree.allReduce(1, sum), " ", thread:join(), " ")
      io.stdout:flush()
      if arg[1] == "error" then error("failed") elseif arg[1] ~= "end" then os.exit(tonumber(arg[1])) end
    ]])
    file:close()
    for how, status in pairs{["end"] = 0, ["0"] = 0, ["3"] = 3, error = 1} do
      local pipe = assert(io.popen(("timeout 60 %s %s %s 2>/dev/null; echo $?"):format(require("spec.ranks").INTERPRETER, path, how)))
      assert.equal(("3 3 %d\n"):format(status), pipe:read("*a"))
      pipe:close()
    end
    os.remove(path)
  end)
end)
