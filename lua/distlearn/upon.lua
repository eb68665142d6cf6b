--- What the algorithms have in common: parameters as tables of tensors, trees, errors. Internal.

local capi = require("polyverso.capi")
local distlearn = require("polyverso.distlearn")
local native = require("polyverso.ipc")
local values = require("ipc.values")

local upon = {}

local function joined(result, code, text)
  if code then capi.raise(code, text) end
  return result
end

--- An algorithm of polyverso.distlearn's upon a tree of ipc's. NullTree has no others to join: it gets a cluster of one.
function upon.tree(tree, algorithm, ...)
  if type(tree) ~= "table" or not tree.numNodes then
    capi.raise(capi.MV_EINVAL, "distlearn: a tree of ipc's is needed, not a " .. type(tree))
  end
  if not tree.joined and tree.numNodes > 1 then
    capi.raise(capi.MV_EINVAL, "distlearn: this tree is none of ipc.Tree's, LocalhostTree's or their siblings'")
  end
  tree.joined = tree.joined or joined(native.join(1, 1))
  local strategy = distlearn[algorithm](tree.joined:group(), ...)
  strategy.tree = tree.joined -- which is to outlive it
  return strategy
end

--- A method of the strategy's on nested tables of tensors, in their places. Returns how many nodes contributed.
function upon.call(strategy, method, nested)
  local holder = {nested}
  local leaves = values.leaves(holder)
  local contributors = strategy[method](strategy, values.cells(leaves))
  values.settle(holder, leaves)
  return contributors
end

return upon
