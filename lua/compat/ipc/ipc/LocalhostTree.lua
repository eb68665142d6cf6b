--- A tree of processes or threads of this machine with a common parent: they find each other by its process id.
--
-- In a process started by `polyverso run -n N` the tree is the launcher's cluster, unless the arguments ask for
-- another: a script needs only LocalhostTree().

local ipc = require("libipc")
local native = require("polyverso.ipc")
local NullTree = require("ipc.NullTree")
local Tree = require("ipc.Tree")

local HOST, PATIENCE = "127.0.0.1", 300 -- seconds, like ipc.client()

-- The first node keeps its address in the claimed file while it makes the tree.
local function lead(claim, numNodes)
  local server, port = ipc.server(HOST)
  claim:write(("%s:%d"):format(HOST, port))
  local made, tree = pcall(Tree, 1, numNodes, 2, server, nil, HOST)
  claim:release()
  server:close()
  if not made then require("polyverso.capi").raise_again(tree) end
  return tree
end

local function follow(where, nodeIndex, numNodes)
  local host, port = where:match("^(.*):(%d+)$")
  local reached, client = pcall(native.client, host, tonumber(port), 1)
  if not reached then return nil end -- the first node has ended: another one will write its address
  local tree = Tree(nodeIndex, numNodes, 2, nil, client, HOST)
  client:close()
  return tree
end

-- Reports a long wait on stderr: after 5 seconds, and then every minute.
local function report(path, nodeIndex, numNodes, waited)
  local who = nodeIndex and ("node %d"):format(nodeIndex) or "a node"
  io.stderr:write(("ipc.LocalhostTree: %s of %d has waited %d s for node 1, which writes its address into %s: is it running, "):format(who,
    numNodes, waited, path), "with the same parent process?\n")
end

---@param nodeIndex? integer 1 .. numNodes; nil: numbered in the order of arrival
---@param numNodes? integer nil: the launcher's cluster
---@param ppid? integer process id of the common parent, if it is not this process's own parent
---@return ipc.Tree
local function LocalhostTree(nodeIndex, numNodes, ppid)
  Tree.check("ipc.LocalhostTree", nodeIndex, numNodes)
  nodeIndex, numNodes = tonumber(nodeIndex), tonumber(numNodes)
  if numNodes == 1 then return NullTree() end
  if numNodes == nil or not ppid and Tree.is_launched(nodeIndex, numNodes) then return Tree.launched() end
  local path = ("%s/%d.localhost"):format(os.getenv("XDG_RUNTIME_DIR") or "/tmp", tonumber(ppid) or ipc.getppid())
  local started, next_report = os.time(), 5
  for _ = 1, PATIENCE * 100 do
    local claim = (nodeIndex == nil or nodeIndex == 1) and native.claim(path)
    if claim then return lead(claim, numNodes) end
    local where = nodeIndex ~= 1 and native.claimed(path)
    local tree = where and follow(where, nodeIndex, numNodes)
    if tree then return tree end
    ipc.sleep(0.01)
    local waited = os.time() - started
    if waited >= next_report then
      report(path, nodeIndex, numNodes, waited)
      next_report = waited + 60
    end
  end
  error(("ipc.LocalhostTree: the first of %d nodes did not start within %d seconds: see %s"):format(numNodes, PATIENCE, path), 2)
end

return LocalhostTree
