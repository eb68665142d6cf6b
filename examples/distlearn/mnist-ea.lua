-- AllReduceEA, after torch-distlearn's example of this name: each node trains on its own; a centre keeps them close.
--
--     polyverso run -n 4 -- luajit examples/distlearn/mnist-ea.lua [--epochs 30] [--batch 8] [--rate 0.3] [--save FOLDER]
--
-- The nodes have unequal shares of the images, so some finish an epoch before others.

package.path = (arg[0]:match("^(.*/)") or "./") .. "?.lua;" .. package.path
local digits = require 'digits'

local opt = digits.options("Train a classifier on digits using AllReduceEA.",
  {{"--tau", 10, "steps between averages"}, {"--alpha", 0.2, "how strongly nodes and centre attract each other"}})
local tree = require 'ipc.LocalhostTree'(tonumber(opt.nodeIndex), tonumber(opt.numNodes))
local allReduceEA = require 'distlearn.AllReduceEA'(tree, opt.tau, opt.alpha)
local says = tree.nodeIndex == 1 and print or function() end

local train, test = digits.load()
local share = digits.share(train, tree.nodeIndex, tree.numNodes)
local order = digits.batcher(share, opt.batch, tree.nodeIndex)

local params = digits.parameters()
-- Start with the same parameters on all nodes
allReduceEA.synchronizeParameters(params)

local worst
for epoch = 1, opt.epochs do
  local confusion, timer = digits.confusion(), torch.Timer()
  local steps = order(epoch)
  for _, positions in ipairs(steps) do
    local batch = digits.pick(share, positions)
    local grads, prediction = digits.gradients(params, batch)
    digits.descend(params, grads, opt.rate)
    -- Average the parameters
    allReduceEA.averageParameters(params)
    digits.count(confusion, prediction, batch.labels)
  end
  -- Remove the drift of the centres by rounding
  allReduceEA.synchronizeCenter(params)
  -- The sum of all nodes' confusion matrices, and the lowest accuracy of any node
  tree.allReduce(confusion, function(a, b) return a:add(b) end)
  worst = tree.allReduce(digits.accuracy(params, test), math.min)
  says(("epoch %d: %d steps here, %.0f ms, training %.4f, accuracy %.4f or more"):format(epoch, #steps, 1000 * timer:time().real,
    digits.right(confusion), worst))
  if epoch == opt.epochs then says(digits.text(confusion)) end
end

says(("final accuracy %.4f"):format(worst))
digits.save(opt.save, tree.nodeIndex, params)
