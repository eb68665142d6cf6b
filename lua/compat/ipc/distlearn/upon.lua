--- Helpers common to the algorithms: parameters as tables of tensors, trees, errors. Internal.

local arrays = require("polyverso.arrays")
local capi = require("polyverso.capi")
local distlearn = require("polyverso.distlearn")
local foreign = require("polyverso.foreign")
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

-- Collects the names and the sizes of the leaves, in the order of walkTable().
local function describe(nested, name, names, shapes)
  for _, key in ipairs(arrays.sorted_keys(nested)) do
    local value, here = nested[key], arrays.name_below(name, key)
    if type(value) == "table" then
      describe(value, here, names, shapes)
    elseif type(value) == "number" or value:nElement() > 0 then
      names[#names + 1], shapes[#shapes + 1] = here, type(value) == "number" and {} or foreign.shape(value)
    end
  end
end

--- Calls a method of the strategy on nested tables of tensors, in place. Returns the number of contributors.
function upon.call(strategy, method, nested)
  local holder = {nested}
  local leaves = values.leaves(holder)
  local cells, names, shapes = values.cells(leaves), {}, {}
  describe(holder, "", names, shapes)
  local label = arrays.label(cells, names, function(i) return shapes[i] end)
  local contributors = strategy[method](strategy, cells, nil, label or 0)
  values.settle(holder, leaves)
  return contributors
end

return upon
