-- Softmax regression on handwritten digits: one worker, in plain Lua (5.1, LuaJIT, 5.4). train.py and train.pl are
-- equivalent.
--
--     polyverso run -n 3 -- luajit examples/digits/train.lua [--epochs 300] [--rate 2] [--report 5] [--save FOLDER]
--
-- A single worker trains on all images, each of n workers on every n-th one. All share one table of 65 x 10 weights.

local polyverso = require("polyverso")

local PIXELS, DIGITS = 64, 10
local DATA = (arg[0]:match("^(.*/)") or "./") .. "../../data/digits.csv.gz"

-- Returns the images for training and for testing. An image is {inputs, label}; its inputs are 64 pixels of 0 .. 1 and
-- a constant 1.
local function read_digits()
  local train, test = {}, {}
  local file = assert(io.popen("gzip -dc '" .. DATA .. "'"))
  local count = 0
  for line in file:lines() do
    local image = {inputs = {}}
    for number in line:gmatch("%d+") do
      local at = #image.inputs + 1
      if at <= PIXELS then image.inputs[at] = tonumber(number) / 16 else image.label = tonumber(number) end
    end
    image.inputs[PIXELS + 1] = 1
    table.insert(count % 4 == 3 and test or train, image)
    count = count + 1
  end
  file:close()
  assert(count > 0, "there are no images in " .. DATA)
  return train, test
end

-- Weights and gradients have a row for each input and a column for each digit, like the table.
local function scores_of(weights, inputs, scores)
  for d = 1, DIGITS do scores[d] = 0 end
  for i, value in ipairs(inputs) do
    local row = weights[i]
    if value ~= 0 then
      for d = 1, DIGITS do scores[d] = scores[d] + value * row[d] end
    end
  end
  return scores
end

local function softmax(scores)
  local highest, sum = scores[1], 0
  for d = 2, DIGITS do highest = math.max(highest, scores[d]) end
  for d = 1, DIGITS do
    scores[d] = math.exp(scores[d] - highest)
    sum = sum + scores[d]
  end
  for d = 1, DIGITS do scores[d] = scores[d] / sum end
  return scores
end

-- `scale` times the gradient of the summed cross entropy.
local function gradient(weights, images, scale)
  local sums, errors = {}, {}
  for i = 1, PIXELS + 1 do
    sums[i] = {}
    for d = 1, DIGITS do sums[i][d] = 0 end
  end
  for _, image in ipairs(images) do
    softmax(scores_of(weights, image.inputs, errors))
    errors[image.label + 1] = errors[image.label + 1] - 1
    for i, value in ipairs(image.inputs) do
      local row, scaled = sums[i], scale * value
      if value ~= 0 then
        for d = 1, DIGITS do row[d] = row[d] + scaled * errors[d] end
      end
    end
  end
  return sums
end

local function loss(weights, images)
  local sum, scores = 0, {}
  for _, image in ipairs(images) do
    sum = sum - math.log(softmax(scores_of(weights, image.inputs, scores))[image.label + 1])
  end
  return sum / #images
end

local function accuracy(weights, images)
  local right, scores = 0, {}
  for _, image in ipairs(images) do
    scores_of(weights, image.inputs, scores)
    local best = 1
    for d = 2, DIGITS do
      if scores[d] > scores[best] then best = d end
    end
    if best == image.label + 1 then right = right + 1 end
  end
  return right / #images
end

local function say(...)
  io.write(string.format(...), "\n")
  io.flush()
end

local options = {epochs = 300, rate = 2, report = 5}
for i = 1, #arg, 2 do
  local key = arg[i]:match("^%-%-(%a+)$")
  assert(key and arg[i + 1], "usage: train.lua [--epochs N] [--rate R] [--report N] [--save FOLDER]")
  options[key] = key == "save" and arg[i + 1] or tonumber(arg[i + 1])
end

local train, test = read_digits()
local node = polyverso.init() -- sync or async, as the launcher's options say
local shared = node:matrix{rows = PIXELS + 1, cols = DIGITS}
local mine = {}
for k = node:worker_id() + 1, #train, node:num_workers() do mine[#mine + 1] = train[k] end

node:barrier()
local begun = os.time() -- plain Lua has no finer wall clock
for epoch = 0, options.epochs - 1 do
  local weights = shared:get()
  if node:is_master() and epoch % options.report == 0 then
    say("epoch %d loss %.4f accuracy %.4f seconds %.3f", epoch, loss(weights, train), accuracy(weights, test), os.time() - begun)
  end
  if epoch % options.report == 0 then node:report("loss", loss(weights, mine)) end -- of this worker's images: for `polyverso dashboard`
  shared:add(gradient(weights, mine, -options.rate / #train), {wait = false})
end

node:barrier() -- afterwards the table has all adds of all workers
local weights = shared:get()
if options.save then
  -- Nine digits distinguish any two float32 values.
  local file = assert(io.open(("%s/weights-%d.txt"):format(options.save, node:worker_id()), "w"))
  for _, row in ipairs(weights) do
    for _, value in ipairs(row) do file:write(("%.9g\n"):format(value)) end
  end
  file:close()
end
if node:is_master() then
  -- Only one worker reads here. A get would count in the rounds of sync mode; a peek does not.
  local final = shared:peek()
  say("final accuracy %.4f seconds %.3f", accuracy(final, test), os.time() - begun)
end
node:shutdown()
