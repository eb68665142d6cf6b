--- A tree whose first node has an address that all nodes know.

local ipc = require("libipc")
local Tree = require("ipc.Tree")
local NullTree = require("ipc.NullTree")

---@param nodeIndex? integer 1 .. numNodes; nil: the node that can listen at the address is the first
---@param numNodes integer
---@param nodeHost? string
---@param nodePort? integer
---@param rootHost string the first node's address
---@param rootPort integer
---@return ipc.Tree
local function StaticTree(nodeIndex, numNodes, nodeHost, nodePort, rootHost, rootPort)
  Tree.check("ipc.StaticTree", nodeIndex, numNodes)
  if tonumber(numNodes) == 1 then return NullTree() end
  -- Nodes without numbers: the one that can bind the address is the first.
  local listens, server = tonumber(nodeIndex) == 1, nil
  if listens then
    server = ipc.server(nodeHost or rootHost, nodePort or rootPort)
  elseif nodeIndex == nil then
    listens, server = pcall(ipc.server, rootHost, rootPort)
  end
  if listens then return Tree(1, numNodes, 2, server, nil, nodeHost or rootHost, nodePort) end
  return Tree(nodeIndex, numNodes, 2, nil, ipc.client(rootHost, rootPort), nodeHost, nodePort)
end

return StaticTree
