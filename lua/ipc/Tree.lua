--- Nodes that reduce together: `ipc.Tree(nodeIndex, numNodes, base, server, client, host, port)`.
--
-- The node with the server is number 1; the others have a client of it. They tell it who they are, it tells them where to meet, and
-- then they are a cluster of their own, with the core's all-reduce. Server and client are free for other things afterwards. `base` and
-- `buildTree`, which shaped torch-ipc's tree, are the core's to choose: from the sizes, the nodes and their hosts.

local capi = require("polyverso.capi")
local native = require("polyverso.ipc")
local NullTree = require("ipc.NullTree")
local reduction = require("ipc.reduction")
local walkTable = require("ipc.utils").walkTable

-- ------------------------------------------------------------------ who is who

-- The node of each client, of their wishes in the order in which they came; or nil and what is wrong.
local function assign(wishes, numNodes)
  local taken, nodes = {[1] = "the server"}, {}
  for i, wish in ipairs(wishes) do
    local wanted = wish.nodeIndex
    if wish.numNodes ~= numNodes then
      return nil, ("node %s is one of %s, the server's of %d"):format(tostring(wanted), tostring(wish.numNodes), numNodes)
    elseif wanted ~= nil and (type(wanted) ~= "number" or wanted % 1 ~= 0 or wanted < 1 or wanted > numNodes) then
      return nil, ("there is no node %s of %d"):format(tostring(wanted), numNodes)
    elseif wanted ~= nil and taken[wanted] then
      return nil, ("node %d is there twice"):format(wanted)
    elseif wanted ~= nil then
      taken[wanted], nodes[i] = true, wanted
    end
  end
  local free = 2
  for i = 1, #wishes do
    if not nodes[i] then
      while taken[free] do free = free + 1 end
      taken[free], nodes[i] = true, free
    end
  end
  return nodes
end

local function lead(numNodes, server, host)
  local clients, wishes = {}, {}
  server:clients(numNodes - 1, function(client)
    clients[#clients + 1] = client
    client:send({q = "node?"})
    wishes[#wishes + 1] = client:recv()
  end)
  local nodes, wrong = assign(wishes, numNodes)
  if #clients ~= numNodes - 1 then
    nodes, wrong = nil, ("%d clients for a tree of %d nodes"):format(#clients, numNodes)
  end
  local reserved, port = native.reserve(host)
  local master = ("%s:%d"):format(host, port)
  for i, client in ipairs(clients) do
    client:send(nodes and {nodeIndex = nodes[i], master = master} or {wrong = wrong})
  end
  if not nodes then capi.raise(capi.MV_EDISAGREE, "ipc.Tree: " .. wrong) end
  return master, reserved
end

local function follow(nodeIndex, numNodes, client)
  local question = client:recv()
  if type(question) ~= "table" or question.q ~= "node?" then
    capi.raise(capi.MV_EPROTOCOL, "ipc.Tree: at the client's other end nobody makes a tree")
  end
  client:send({nodeIndex = nodeIndex, numNodes = numNodes})
  local place = client:recv()
  if place.wrong then capi.raise(capi.MV_EDISAGREE, "ipc.Tree: " .. place.wrong) end
  return place.nodeIndex, place.master
end

-- ------------------------------------------------------------------ trees

--- What a script gets. `joined` is of native.join().
local function upon(joined)
  local info = joined:info()
  local last -- the value of the last call that contributed

  local function allReduce(value, reduce, zero)
    if type(reduce) ~= "function" then error("allReduce(value, reduce [, zero]): reduce is a " .. type(reduce), 2) end
    if zero then
      if value == nil then value = last end
      return reduction.drain(joined, value, reduce, zero), 0
    end
    last = value
    return reduction.contribute(joined, value, reduce)
  end

  return {
    nodeIndex = info.rank + 1,
    numNodes = info.size,
    walkTable = walkTable,
    --- Every node's value, reduced to one, in its place; and how many nodes contributed. reduce(a, b) works in a, or returns a new
    --- value. With a zero function this node has nothing to contribute any more: until all have come so far it takes part with what
    --- zero(leaf, number) makes of each leaf of the value, or of the last one. Its contributors are 0.
    allReduce = allReduce,
    --- The first node's value, on all: in the places of the others' values where these are of its form. They may be nil.
    scatter = function(value) return reduction.scatter(joined, value) end,
    netStats = function()
      local now = joined:info()
      print(("node %d of %d, by %s: %d operations, %d bytes sent, %d received"):format(now.rank + 1, now.size, now.transport, now.operations,
        now.sent, now.received))
      return now
    end,
    joined = joined, -- for distlearn
  }
end

local function join(...)
  local joined, code, text = native.join(...)
  return joined or capi.raise(code, text)
end

--- @param nodeIndex 1 .. numNodes; nil: the server's is 1, the others' are given out in the order in which they came
--- @param host of the address at which this node is found by the others
local function Tree(nodeIndex, numNodes, _, server, client, host)
  numNodes, nodeIndex = tonumber(numNodes), nodeIndex and (tonumber(nodeIndex) or nodeIndex)
  if numNodes == 1 then return NullTree() end
  if not numNodes or numNodes < 1 or numNodes % 1 ~= 0 then error("ipc.Tree: numNodes is not a number of nodes", 2) end
  host = host or "127.0.0.1"
  local master, reserved
  if server then
    if (nodeIndex or 1) ~= 1 then error("ipc.Tree: the node with the server is number 1, not " .. tostring(nodeIndex), 2) end
    nodeIndex = 1
    master, reserved = lead(numNodes, server, host)
  elseif client then
    nodeIndex, master = follow(nodeIndex, numNodes, client)
  else
    error("ipc.Tree: a server, or a client of another node's, is needed", 2)
  end
  local joined = join(nodeIndex, numNodes, master, host)
  if reserved then reserved:release() end
  return upon(joined)
end

return setmetatable({
  --- An error where nodeIndex, which may be nil, is no node of numNodes, before anybody waits for it.
  check = function(name, nodeIndex, numNodes)
    local index, count = tonumber(nodeIndex), tonumber(numNodes)
    if nodeIndex == nil or count == nil or index and index % 1 == 0 and index >= 1 and index <= count then return end
    error(("%s: there is no node %s of %d"):format(name, tostring(nodeIndex), count), 3)
  end,
  --- The tree of the cluster that this process was started in, by `polyverso run` or another launcher.
  launched = function() return upon(join()) end,
  --- Whether there is one, of so many nodes, with this place in it; nil: whichever it is.
  is_launched = function(nodeIndex, numNodes)
    local nodes, rank = tonumber(os.getenv("POLYVERSO_NODES") or ""), tonumber(os.getenv("POLYVERSO_RANK") or "")
    return nodes ~= nil and (numNodes == nil or numNodes == nodes) and (nodeIndex == nil or nodeIndex - 1 == rank)
  end,
}, {__call = function(_, ...) return Tree(...) end})
