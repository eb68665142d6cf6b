-- AllReduceSGD with momentum that trains on when workers die and fresh ones come: the same result as without.
--
--     polyverso run -n 4 --servers 1 --keep-going -- luajit examples/distlearn/elastic.lua [--steps 400] [--save FOLDER]
--
-- A process that takes the place of a lost one is started with --join 1, and with the settings and the rank of the lost
-- one. Until it is there the others wait, so each step has the gradients of all ranks. elastic.py and elastic.pl are
-- equivalent; ranks of the three languages can train together.

package.path = (arg[0]:match("^(.*/)") or "./") .. "?.lua;" .. package.path
local digits = require 'digits'
local polyverso = require 'polyverso'
local groups = require 'polyverso.group'
local distlearn = require 'polyverso.distlearn'

local NAME, MOMENTUM, PATIENCE = "elastic", 0.9, 60
local opt = digits.options("Train a classifier on digits although workers die.", {
  {"--steps", 400, "number of steps"}, {"--join", 0, "1: this process has the place of a lost one"},
  {"--every", 20, "steps from one line of output to the next"}})
io.stdout:setvbuf("line")
local node = polyverso.init()
local ranks, index = node:num_workers(), node:worker_id() + 1
local train, test = digits.load()
local mine = digits.share(train, index, ranks)
local batches = digits.batcher(mine, opt.batch, index)

local params, velocity, state = digits.parameters(), digits.parameters(), {}
for _, part in ipairs{params, velocity} do
  for _, layer in ipairs{"hidden", "linear"} do
    for _, tensor in ipairs(part[layer]) do
      if part == velocity then tensor:zero() end
      state[#state + 1] = tensor
    end
  end
end
local step = torch.zeros(1)
state[#state + 1] = step

-- The batch of this step: the same for every process that has this rank.
local function batch()
  local per_epoch = math.floor(mine.labels:size(1) / opt.batch)
  return digits.pick(mine, batches(math.floor(step[1] / per_epoch))[step[1] % per_epoch + 1])
end

-- A strategy on a new group, whose newcomers get the state of a rank that has been there before.
local function started(group)
  group:broadcast_many(state, {root = group:info().elder})
  return distlearn.AllReduceSGD(group)
end

local group = opt.join ~= 0 and groups.join(node, {name = NAME, timeout = PATIENCE}) or groups.open(node)
local sgd, ended
while not ended do
  local grads
  local works, lost = pcall(function()
    local grown = sgd and group:grow{ranks = ranks, name = NAME, timeout = PATIENCE} -- nil: nothing has changed
    if grown then
      sgd:close()
      group:close()
      group, sgd = grown, nil
      print(("a group of %d, generation %d"):format(group.size, group:info().generation))
    end
    ended = sgd and step[1] >= opt.steps -- all ranks are here
    sgd = sgd or started(group)
    if step[1] >= opt.steps then return end
    grads = digits.gradients(params, batch())
    sgd:sum_and_normalize_gradients(grads)
  end)
  if works and grads then
    for layer, arrays in pairs(params) do
      for i = 1, 2 do
        velocity[layer][i]:mul(MOMENTUM):add(grads[layer][i])
        arrays[i]:add(-opt.rate, velocity[layer][i])
      end
    end
    step:add(1)
    if step[1] % opt.every == 0 then print(("step %d is done"):format(step[1])) end
  elseif not works then
    if type(lost) ~= "table" or lost.name ~= "MV_EPEERLOST" then error(lost) end
    print(("step %d: %s"):format(step[1], tostring(lost)))
    sgd = sgd or distlearn.AllReduceSGD(group) -- grow() comes next
  end
end

print(("loss %.12f, accuracy %.4f"):format(digits.loss(params, train), digits.accuracy(params, test)))
digits.save(opt.save, node:worker_id(), params)
sgd:close()
group:close()
node:shutdown()
