--- Helpers common to the algorithms: parameters as tables of tensors, trees, errors. Internal.

local capi = require("polyverso.capi")
local distlearn = require("polyverso.distlearn")
local native = require("polyverso.ipc")
local values = require("ipc.values")

local upon = {}

local function joined(result, code, text)
  if code then capi.raise(code, text) end
  return result
end

--- Opens an algorithm of polyverso.distlearn on a tree of ipc's. A NullTree gets a cluster of one.
function upon.tree(tree, algorithm, ...)
  if type(tree) ~= "table" or not tree.numNodes then
    capi.raise(capi.MV_EINVAL, "distlearn: an ipc tree is needed, not a " .. type(tree))
  end
  if not tree.joined and tree.numNodes > 1 then
    capi.raise(capi.MV_EINVAL, "distlearn: this tree was not made by ipc.Tree, ipc.LocalhostTree or another module of ipc")
  end
  tree.joined = tree.joined or joined(native.join(1, 1))
  local strategy = distlearn[algorithm](tree.joined:group(), ...)
  strategy.tree = tree.joined -- must outlive the strategy
  return strategy
end

--- Calls a method of the strategy on nested tables of tensors, in place. Returns the number of contributors.
function upon.call(strategy, method, nested)
  local holder = {nested}
  local leaves = values.leaves(holder)
  local contributors = strategy[method](strategy, values.cells(leaves))
  values.settle(holder, leaves)
  return contributors
end

return upon
