--- A tree whose first node tells the others where it is by publish(host, port), which they learn by query(), as two results.

local ipc = require("libipc")
local Tree = require("ipc.Tree")
local NullTree = require("ipc.NullTree")

local function DiscoveredTree(nodeIndex, numNodes, nodeHost, nodePort, publish, query)
  if tonumber(numNodes) == 1 then return NullTree() end
  if tonumber(nodeIndex) == 1 then
    local server, port = ipc.server(nodeHost, nodePort)
    publish(nodeHost, port)
    return Tree(nodeIndex, numNodes, 2, server, nil, nodeHost, port)
  end
  local rootHost, rootPort = query()
  return Tree(nodeIndex, numNodes, 2, nil, ipc.client(rootHost, rootPort), nodeHost, nodePort)
end

return DiscoveredTree
