-- AllReduceSGD, after torch-distlearn's example of this name: each step sums the gradients of all nodes.
--
--     polyverso run -n 4 -- luajit examples/distlearn/mnist.lua [--epochs 30] [--batch 8] [--rate 0.3] [--save FOLDER]
--
-- The nodes have unequal shares of the images, so some finish an epoch before others. `--inPlaceOf 4` does the work of
-- four nodes in one process: each step joins the batches of those nodes that still have one.

package.path = (arg[0]:match("^(.*/)") or "./") .. "?.lua;" .. package.path
local digits = require 'digits'

local opt = digits.options("Train a classifier on digits using AllReduceSGD.", {{"--inPlaceOf", 0, "do the work of this many nodes in one process"}})
local tree = require 'ipc.LocalhostTree'(tonumber(opt.nodeIndex), opt.inPlaceOf > 0 and 1 or tonumber(opt.numNodes))
local allReduceSGD = require 'distlearn.AllReduceSGD'(tree)
local says = tree.nodeIndex == 1 and print or function() end

local train, test = digits.load()

-- The batches of an epoch: of this node, or those of several nodes joined.
local function batches_of()
  if opt.inPlaceOf == 0 then
    local share = digits.share(train, tree.nodeIndex, tree.numNodes)
    local order = digits.batcher(share, opt.batch, tree.nodeIndex)
    return function(epoch)
      local batches = {}
      for i, positions in ipairs(order(epoch)) do batches[i] = digits.pick(share, positions) end
      return batches
    end
  end
  local shares, orders = {}, {}
  for node = 1, opt.inPlaceOf do
    shares[node] = digits.share(train, node, opt.inPlaceOf)
    orders[node] = digits.batcher(shares[node], opt.batch, node)
  end
  return function(epoch)
    local batches = {}
    for node = 1, opt.inPlaceOf do
      for i, positions in ipairs(orders[node](epoch)) do
        local part, whole = digits.pick(shares[node], positions), batches[i]
        batches[i] = whole and {inputs = torch.cat(whole.inputs, part.inputs, 1), labels = torch.cat(whole.labels, part.labels, 1)} or part
      end
    end
    return batches
  end
end

local batches = batches_of()
local params = digits.parameters()
-- Start with the same parameters on all nodes
allReduceSGD.synchronizeParameters(params)

for epoch = 1, opt.epochs do
  local confusion, timer = digits.confusion(), torch.Timer()
  local steps = batches(epoch)
  for _, batch in ipairs(steps) do
    local grads, prediction = digits.gradients(params, batch)
    -- Sum and normalize the gradients
    allReduceSGD.sumAndNormalizeGradients(grads)
    digits.descend(params, grads, opt.rate)
    digits.count(confusion, prediction, batch.labels)
  end
  -- Validate with bit-identical parameters on all nodes
  allReduceSGD.synchronizeParameters(params)
  -- The sum of all nodes' confusion matrices
  tree.allReduce(confusion, function(a, b) return a:add(b) end)
  says(("epoch %d: %d steps here, %.0f ms, training %.4f, accuracy %.4f"):format(epoch, #steps, 1000 * timer:time().real,
    digits.right(confusion), digits.accuracy(params, test)))
  if epoch == opt.epochs then says(digits.text(confusion)) end
end

says(("final accuracy %.4f"):format(digits.accuracy(params, test)))
digits.save(opt.save, tree.nodeIndex, params)
