--- Elastic averaging: every tau steps each node and a centre, which all have, draw each other nearer by alpha:
--- `require 'distlearn.AllReduceEA'(tree, tau, alpha)`.
--
-- Nodes may make different numbers of steps. Who has made his calls synchronizeCenter(), and takes part until all have.

local upon = require("distlearn.upon")

local function AllReduceEA(tree, tau, alpha)
  local ea = upon.tree(tree, "AllReduceEA", tau, alpha)
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
