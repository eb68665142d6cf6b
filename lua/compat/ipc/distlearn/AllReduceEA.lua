--- Elastic averaging: every tau steps, each node and a centre, of which all nodes have a copy, move towards each other
--- by alpha times their difference: `require 'distlearn.AllReduceEA'(tree, tau, alpha)`.
--
-- Nodes may make different numbers of steps. After its last step a node calls synchronizeCenter(), and takes part until
-- all nodes have called it.

local capi = require("polyverso.capi")
local upon = require("distlearn.upon")

-- Numbers are also accepted as text, because command lines contain text.
local function number(name, value)
  return tonumber(value) or capi.raise(capi.MV_EINVAL, ("AllReduceEA(tree, tau, alpha): %s is %s, not a number"):format(name, tostring(value)))
end

---@class distlearn.AllReduceEA
---@field averageParameters fun(params: table)
---@field synchronizeCenter fun(params: table)
---@field synchronizeParameters fun(params: table)

---@param tree ipc.Tree
---@param tau integer|string steps between averages
---@param alpha number|string how far node and centre move towards each other, 0 .. 1
---@return distlearn.AllReduceEA
local function AllReduceEA(tree, tau, alpha)
  local ea = upon.tree(tree, "AllReduceEA", number("tau", tau), number("alpha", alpha))
  return {
    --- Call after each step; averages at every tau-th.
    averageParameters = function(params) upon.call(ea, "average_parameters", params) end,
    --- Gives all nodes the first node's centre, which removes differences by rounding. Ends an epoch.
    synchronizeCenter = function(params) upon.call(ea, "synchronize_center", params) end,
    --- Gives all nodes the same parameters and centre: the first node's parameters.
    synchronizeParameters = function(params) upon.call(ea, "synchronize_parameters", params) end,
  }
end

return AllReduceEA
