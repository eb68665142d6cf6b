--- A tree whose first node announces its address with publish(host, port); query() returns host and port to the others.
--
-- Nodes without a number: a node becomes the first if query() returns nothing. The service behind query() and publish()
-- must ensure that this happens to one node only.

local ipc = require("libipc")
local Tree = require("ipc.Tree")
local NullTree = require("ipc.NullTree")

---@param nodeIndex? integer 1 .. numNodes
---@param numNodes integer
---@param nodeHost string the host at which the other nodes reach this one
---@param nodePort? integer the first node's port; nil: a free one
---@param publish fun(host: string, port: integer)
---@param query fun(): string?, integer?
---@return ipc.Tree
local function DiscoveredTree(nodeIndex, numNodes, nodeHost, nodePort, publish, query)
  Tree.check("ipc.DiscoveredTree", nodeIndex, numNodes)
  if tonumber(numNodes) == 1 then return NullTree() end
  local rootHost, rootPort
  if tonumber(nodeIndex) ~= 1 then rootHost, rootPort = query() end
  if tonumber(nodeIndex) == 1 or nodeIndex == nil and rootHost == nil then
    local server, port = ipc.server(nodeHost, nodePort)
    publish(nodeHost, port)
    return Tree(1, numNodes, 2, server, nil, nodeHost, port)
  end
  return Tree(nodeIndex, numNodes, 2, nil, ipc.client(rootHost, rootPort), nodeHost, nodePort)
end

return DiscoveredTree
