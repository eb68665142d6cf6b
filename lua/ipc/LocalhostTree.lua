--- A tree of processes, or threads, of this machine that have one parent: they find each other by its number.
--
-- Started by `polyverso run -n N` the tree is the launcher's cluster, if nothing else is asked for: LocalhostTree() is all a script needs.

local ipc = require("libipc")
local native = require("polyverso.ipc")
local NullTree = require("ipc.NullTree")
local Tree = require("ipc.Tree")

local HOST, PATIENCE = "127.0.0.1", 300 -- seconds, as ipc.client() has

-- The first node writes where it is, as long as the tree is being made.
local function lead(claim, numNodes)
  local server, port = ipc.server(HOST)
  claim:write(("%s:%d"):format(HOST, port))
  local made, tree = pcall(Tree, 1, numNodes, 2, server, nil, HOST)
  claim:release()
  server:close()
  if not made then error(tree, 0) end
  return tree
end

local function follow(where, nodeIndex, numNodes)
  local host, port = where:match("^(.*):(%d+)$")
  local reached, client = pcall(native.client, host, tonumber(port), 1)
  if not reached then return nil end -- it has ended meanwhile: another one will write
  local tree = Tree(nodeIndex, numNodes, 2, nil, client, HOST)
  client:close()
  return tree
end

--- @param nodeIndex 1 .. numNodes; nil: by the order in which they come
--- @param ppid of the parent, if it is not this process's own
local function LocalhostTree(nodeIndex, numNodes, ppid)
  Tree.check("ipc.LocalhostTree", nodeIndex, numNodes)
  nodeIndex, numNodes = tonumber(nodeIndex), tonumber(numNodes)
  if numNodes == 1 then return NullTree() end
  if numNodes == nil or not ppid and Tree.is_launched(nodeIndex, numNodes) then return Tree.launched() end
  local path = ("%s/%d.localhost"):format(os.getenv("XDG_RUNTIME_DIR") or "/tmp", tonumber(ppid) or ipc.getppid())
  for _ = 1, PATIENCE * 100 do
    local claim = (nodeIndex == nil or nodeIndex == 1) and native.claim(path)
    if claim then return lead(claim, numNodes) end
    local where = nodeIndex ~= 1 and native.claimed(path)
    local tree = where and follow(where, nodeIndex, numNodes)
    if tree then return tree end
    ipc.sleep(0.01)
  end
  error(("ipc.LocalhostTree: the first of %d nodes has not come within %d seconds: see %s"):format(numNodes, PATIENCE, path), 2)
end

return LocalhostTree
