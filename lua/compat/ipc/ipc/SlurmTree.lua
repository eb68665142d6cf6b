--- A tree of the tasks that `srun` has started. They find each other by a file in a folder that all of them see. Across
--- hosts they need the same POLYVERSO_SECRET.

local ipc = require("libipc")
local native = require("polyverso.ipc")
local NullTree = require("ipc.NullTree")
local Tree = require("ipc.Tree")

local PATIENCE = 300 -- seconds, like ipc.client()

local function variable(name)
  local value = tonumber(os.getenv(name) or "")
  if not value then error(("ipc.SlurmTree: %s is not set to a number: was this task started by srun?"):format(name), 3) end
  return value
end

local function lead(path, numNodes, host)
  local server, port = ipc.server(host)
  local file = assert(io.open(path .. ".new", "w"))
  file:write(("%s:%d"):format(host, port))
  file:close()
  assert(os.rename(path .. ".new", path)) -- atomic: readers see the whole file or none
  local made, tree = pcall(Tree, 1, numNodes, 2, server, nil, host)
  os.remove(path)
  server:close()
  if not made then require("polyverso.capi").raise_again(tree) end
  return tree
end

local function find(path)
  for _ = 1, PATIENCE * 20 do
    local file = io.open(path, "r")
    local host, port = (file and file:read("*a") or ""):match("^(.*):(%d+)$")
    if file then file:close() end
    local reached, client = false, nil
    if host then reached, client = pcall(native.client, host, tonumber(port), 1) end
    if reached then return client end
    ipc.sleep(0.05)
  end
  error(("ipc.SlurmTree: the first task did not write %s within %d seconds"):format(path, PATIENCE), 3)
end

---@param folder? string a folder that all tasks see; nil: ~/.torch
---@param tasksPerGpu? integer tasks that share a GPU (1); `gpu` of the tree is the number of this task's GPU on its host, from 1
---@param hostAddress? string the address at which the other tasks reach this one; nil: its host's name
---@return ipc.Tree
local function SlurmTree(folder, tasksPerGpu, hostAddress)
  local task, numNodes, hosts = variable("SLURM_PROCID"), variable("SLURM_NTASKS"), variable("SLURM_JOB_NUM_NODES")
  local tasksPerHost = math.ceil(numNodes / hosts)
  local tree
  if numNodes == 1 then
    tree = NullTree()
  else
    folder = folder or os.getenv("HOME") .. "/.torch"
    local path = ("%s/slurm.%s.%s.server"):format(folder, os.getenv("SLURM_JOBID") or "0", os.getenv("SLURM_STEPID") or "0")
    local host = hostAddress or native.hostname()
    if task == 0 then
      native.make_folder(folder)
      tree = lead(path, numNodes, host)
    else
      local client = find(path)
      tree = Tree(task + 1, numNodes, 2, nil, client, host)
      client:close()
    end
  end
  tree.gpu = math.floor((task % tasksPerHost) / (tasksPerGpu or 1)) + 1
  return tree
end

return SlurmTree
