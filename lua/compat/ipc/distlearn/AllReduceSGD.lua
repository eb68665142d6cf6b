--- Sums the gradients of all nodes at every step: `require 'distlearn.AllReduceSGD'(tree)`.
--
-- Nodes may make different numbers of steps. After its last step a node calls synchronizeParameters(), and takes part
-- with zeros until all nodes have called it.

local upon = require("distlearn.upon")

---@class distlearn.AllReduceSGD
---@field sumGradients fun(grads: table): integer
---@field sumAndNormalizeGradients fun(grads: table): integer
---@field synchronizeParameters fun(params: table)

---@param tree ipc.Tree
---@return distlearn.AllReduceSGD
local function AllReduceSGD(tree)
  local sgd = upon.tree(tree, "AllReduceSGD")
  return {
    --- The gradients of every node become their sum over all nodes; returns the number of nodes that contributed.
    sumGradients = function(grads) return upon.call(sgd, "sum_gradients", grads) end,
    --- The gradients of every node become this sum, divided by the number of nodes that contributed to the step; returns
    --- this number.
    sumAndNormalizeGradients = function(grads) return upon.call(sgd, "sum_and_normalize_gradients", grads) end,
    --- Gives all nodes the parameters of the node that made the most steps, or, if no node made a step, of the first.
    synchronizeParameters = function(params) upon.call(sgd, "synchronize_parameters", params) end,
  }
end

return AllReduceSGD
