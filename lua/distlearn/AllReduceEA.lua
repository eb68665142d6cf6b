--- Elastic averaging: every tau steps each node and a centre, which all have, draw each other nearer by alpha:
--- `require 'distlearn.AllReduceEA'(tree, tau, alpha)`.
--
-- Nodes may make different numbers of steps. Who has made his calls synchronizeCenter(), and takes part until all have.

local capi = require("polyverso.capi")
local upon = require("distlearn.upon")

-- Numbers also as texts, which is what comes from a command line.
local function number(name, value)
  return tonumber(value) or capi.raise(capi.MV_EINVAL, ("AllReduceEA(tree, tau, alpha): %s is %s, not a number"):format(name, tostring(value)))
end

local function AllReduceEA(tree, tau, alpha)
  local ea = upon.tree(tree, "AllReduceEA", number("tau", tau), number("alpha", alpha))
  return {
    --- To be called after each step; averages at every tau-th.
    averageParameters = function(params) upon.call(ea, "average_parameters", params) end,
    --- All nodes get the same centre, the first's, so that rounding can't drive them apart. Ends an epoch.
    synchronizeCenter = function(params) upon.call(ea, "synchronize_center", params) end,
    --- All nodes get the same parameters and centre, the first's parameters.
    synchronizeParameters = function(params) upon.call(ea, "synchronize_parameters", params) end,
  }
end

return AllReduceEA
