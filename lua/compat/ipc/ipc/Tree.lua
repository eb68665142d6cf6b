--- Nodes that reduce values together: `ipc.Tree(nodeIndex, numNodes, base, server, client, host, port)`.
--
-- The node with the server is number 1; each other node has a client of it. Each client sends the number that it wants,
-- or none, and the server replies with its number and a meeting address. The nodes then form a cluster of their own and
-- use the core's all-reduce. Server and client can be used for other things afterwards. `base` and `buildTree`, which
-- shaped torch-ipc's tree, are ignored: the core chooses the algorithm by the sizes, the nodes and their hosts.

local capi = require("polyverso.capi")
local native = require("polyverso.ipc")
local NullTree = require("ipc.NullTree")
local reduction = require("ipc.reduction")
local walkTable = require("ipc.utils").walkTable

-- ------------------------------------------------------------------ node numbers

-- The node number of each client, from the clients' wishes in the order of their arrival; or nil and the error.
local function assign(wishes, numNodes)
  local taken, nodes = {[1] = "the server"}, {}
  for i, wish in ipairs(wishes) do
    local wanted = wish.nodeIndex
    if wish.numNodes ~= numNodes then
      return nil, ("node %s expects a tree of %s nodes, the server one of %d"):format(tostring(wanted), tostring(wish.numNodes), numNodes)
    elseif wanted ~= nil and (type(wanted) ~= "number" or wanted % 1 ~= 0 or wanted < 1 or wanted > numNodes) then
      return nil, ("node %s is not in 1 .. %d"):format(tostring(wanted), numNodes)
    elseif wanted ~= nil and taken[wanted] then
      return nil, ("node number %d is used twice"):format(wanted)
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
    capi.raise(capi.MV_EPROTOCOL, "ipc.Tree: the server of this client is not making a tree")
  end
  client:send({nodeIndex = nodeIndex, numNodes = numNodes})
  local place = client:recv()
  if place.wrong then capi.raise(capi.MV_EDISAGREE, "ipc.Tree: " .. place.wrong) end
  return place.nodeIndex, place.master
end

-- ------------------------------------------------------------------ trees

---@class ipc.Tree
---@field nodeIndex integer 1 .. numNodes
---@field numNodes integer
---@field gpu? integer see ipc.SlurmTree
---@field allReduce fun(value: any, reduce: (fun(a: any, b: any): any), zero?: (fun(leaf: any, number: integer): any)): any, integer
---@field scatter fun(value: any): any
---@field walkTable fun(nested: table, f: fun(leaf: any): any)
---@field netStats fun(): table?

--- The tree that a script gets. `joined` comes from native.join().
local function upon(joined)
  local info = joined:info()
  local last -- the value of the last call that contributed

  local function allReduce(value, reduce, zero)
    if type(reduce) ~= "function" then error("allReduce(value, reduce [, zero]): reduce must be a function, not a " .. type(reduce), 2) end
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
    --- Reduces the values of all nodes to one, in place of this node's value; returns it and the number of
    --- contributors. reduce(a, b) changes a, or returns a new value. A node with a zero function drains: until all
    --- nodes drain, it takes part with zero(leaf, number) for each leaf of the value, or of its last value. Its number
    --- of contributors is 0.
    allReduce = allReduce,
    --- The first node's value, on all nodes: in place of their own values if these have its form. Those may be nil.
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

---@param nodeIndex? integer 1 .. numNodes; nil: 1 for the server, the others are numbered in the order of their arrival
---@param numNodes integer
---@param server? ipc.Server of the first node
---@param client? ipc.Client of every other node
---@param host? string the host of the address at which the other nodes reach this one (127.0.0.1)
---@return ipc.Tree
local function Tree(nodeIndex, numNodes, _, server, client, host)
  numNodes, nodeIndex = tonumber(numNodes), nodeIndex and (tonumber(nodeIndex) or nodeIndex)
  if numNodes == 1 then return NullTree() end
  if not numNodes or numNodes < 1 or numNodes % 1 ~= 0 then error("ipc.Tree: numNodes must be an integer of at least 1", 2) end
  host = host or "127.0.0.1"
  local master, reserved
  if server then
    if (nodeIndex or 1) ~= 1 then error("ipc.Tree: the node with the server must be number 1, not " .. tostring(nodeIndex), 2) end
    nodeIndex = 1
    master, reserved = lead(numNodes, server, host)
  elseif client then
    nodeIndex, master = follow(nodeIndex, numNodes, client)
  else
    error("ipc.Tree: a server, or a client of another node's server, is needed", 2)
  end
  local joined = join(nodeIndex, numNodes, master, host)
  if reserved then reserved:release() end
  return upon(joined)
end

return setmetatable({
  --- Raises an error if nodeIndex, which may be nil, is not a node of numNodes, before any node waits for it.
  check = function(name, nodeIndex, numNodes)
    local index, count = tonumber(nodeIndex), tonumber(numNodes)
    if nodeIndex == nil or count == nil or index and index % 1 == 0 and index >= 1 and index <= count then return end
    error(("%s: node %s is not in 1 .. %d"):format(name, tostring(nodeIndex), count), 3)
  end,
  --- The tree of the cluster in which `polyverso run` or another launcher has started this process.
  launched = function() return upon(join()) end,
  --- Whether there is such a cluster, with numNodes nodes and this node's number; nil matches any.
  is_launched = function(nodeIndex, numNodes)
    local nodes, rank = tonumber(os.getenv("POLYVERSO_NODES") or ""), tonumber(os.getenv("POLYVERSO_RANK") or "")
    return nodes ~= nil and (numNodes == nil or numNodes == nodes) and (nodeIndex == nil or nodeIndex - 1 == rank)
  end,
}, {__call = function(_, ...) return Tree(...) end})
