--- Sums the gradients of all nodes at every step: `require 'distlearn.AllReduceSGD'(tree)`.
--
-- Nodes may make different numbers of steps. Who has made his calls synchronizeParameters(), and takes part with zeros until all have.

local upon = require("distlearn.upon")

local function AllReduceSGD(tree)
  local sgd = upon.tree(tree, "AllReduceSGD")
  return {
    --- Every node's gradients become their sum.
    sumGradients = function(grads) return upon.call(sgd, "sum_gradients", grads) end,
    --- Every node's gradients become their sum, divided by how many nodes contributed to this step.
    sumAndNormalizeGradients = function(grads) return upon.call(sgd, "sum_and_normalize_gradients", grads) end,
    --- All nodes get the same parameters: those of the node that made the most steps, or, where none made any, of the first.
    synchronizeParameters = function(params) upon.call(sgd, "synchronize_parameters", params) end,
  }
end

return AllReduceSGD
