-- A small neural network on handwritten digits, data-parallel through a key-value store: one worker, in plain Lua (5.1,
-- LuaJIT, 5.4). train.pl and train.py are equivalent; all three can share one store.
--
--     polyverso run -n 3 -- luajit examples/kvstore/train.lua [--type dist_async] [--epochs 30] [--batch 50] [--rate 0.005]
--         [--threshold 2]
--
-- The network is 64 pixels, 32 hidden units (tanh), 10 digits (softmax): keys w1, b1, w2, b2. Each of n workers takes
-- every n-th image. A step pushes the gradient summed over a batch; the store applies Adam. Gradients are sent as two
-- bits per element, unless --threshold is 0.

local kvstore = require("polyverso.kvstore")
local optimizer = require("polyverso.optimizer")
local polyverso = require("polyverso")
local tensor = require("polyverso.tensor")

local PIXELS, HIDDEN, DIGITS = 64, 32, 10
local DATA = (arg[0]:match("^(.*/)") or "./") .. "../../data/digits.csv.gz"
local KEYS = {"w1", "b1", "w2", "b2"}

-- Returns the images for training, and every fourth for testing: {pixels = of 0 .. 1, label}.
local function read_digits()
  local train, test = {}, {}
  local file = assert(io.popen("gzip -dc '" .. DATA .. "'"))
  local count = 0
  for line in file:lines() do
    local image = {pixels = {}}
    for number in line:gmatch("%d+") do
      local at = #image.pixels + 1
      if at <= PIXELS then image.pixels[at] = tonumber(number) / 16 else image.label = tonumber(number) end
    end
    table.insert(count % 4 == 3 and test or train, image)
    count = count + 1
  end
  file:close()
  assert(count > 0, "there are no images in " .. DATA)
  return train, test
end

-- Images first .. last as tensors: pixels (images, 64), and one-hot labels (images, 10).
local function batch_of(images, first, last)
  local pixels, labels = {}, {}
  for i = first, last do
    local row = {}
    for digit = 0, DIGITS - 1 do row[digit + 1] = digit == images[i].label and 1 or 0 end
    pixels[#pixels + 1], labels[#labels + 1] = images[i].pixels, row
  end
  return tensor.copy_of(pixels), tensor.copy_of(labels)
end

-- Initial values, the same in all languages. The store takes those of worker 0.
local function first_values()
  return {
    tensor.normal({PIXELS, HIDDEN}, 1, 0, 0.1), tensor.zeros(HIDDEN),
    tensor.normal({HIDDEN, DIGITS}, 2, 0, 0.1), tensor.zeros(DIGITS),
  }
end

local function tanh(t) return 1 - 2 / ((t * 2):exp() + 1) end

-- A vector as a column, to subtract one value from each row, for example.
local function column(t) return t:reshape{-1, 1} end

local function forward(values, pixels)
  local hidden = tanh(pixels:matmul(values[1]) + values[2])
  local scores = hidden:matmul(values[3]) + values[4]
  scores = (scores - column(scores:max(1))):exp()
  return hidden, scores / column(scores:sum(1))
end

-- The gradients of the summed cross entropy, by key.
local function gradients(values, pixels, labels)
  local hidden, chances = forward(values, pixels)
  local errors = chances - labels
  local below = errors:matmul(values[3], {transpose_b = true}) * (1 - hidden * hidden)
  return {
    pixels:matmul(below, {transpose_a = true}), below:sum(0),
    hidden:matmul(errors, {transpose_a = true}), errors:sum(0),
  }
end

local function loss(values, pixels, labels)
  local _, chances = forward(values, pixels)
  return -(chances * labels):sum(1):log():mean():item()
end

local function accuracy(values, pixels, labels)
  local _, chances = forward(values, pixels)
  return chances:argmax(1):eq(labels:argmax(1)):mean():item()
end

local function say(...)
  io.write(string.format(...), "\n")
  io.flush()
end

local options = {type = "dist_sync", epochs = 30, batch = 50, rate = 0.005, threshold = 2}
for i = 1, #arg, 2 do
  local key = arg[i]:match("^%-%-(%a+)$")
  assert(key and options[key] and arg[i + 1], "usage: train.lua [--type TYPE] [--epochs N] [--batch N] [--rate R] [--threshold T]")
  options[key] = key == "type" and arg[i + 1] or tonumber(arg[i + 1])
end

local train, test = read_digits()
local node = polyverso.init()
local kv = kvstore.create(options.type)
local rank, workers, batch = kv:rank(), kv:num_workers(), options.batch
local values = first_values()
kv:broadcast(KEYS, values, values)
if options.threshold > 0 then kv:set_gradient_compression{type = "2bit", threshold = options.threshold} end
if rank == 0 then
  kv:set_optimizer(optimizer.Adam{learning_rate = options.rate, rescale_grad = 1 / (batch * workers)})
end
kv:barrier()

local mine, batches = {}, {}
for i = rank + 1, #train, workers do mine[#mine + 1] = train[i] end
for step = 1, math.floor(math.floor(#train / workers) / batch) do -- the same number on all workers
  batches[step] = {batch_of(mine, (step - 1) * batch + 1, step * batch)}
end
local train_pixels, train_labels = batch_of(train, 1, #train)
local test_pixels, test_labels = batch_of(test, 1, #test)

local begun = os.time() -- plain Lua has no finer wall clock
for epoch = 0, options.epochs - 1 do
  for _, images in ipairs(batches) do kv:pushpull(KEYS, gradients(values, images[1], images[2]), values) end
  if rank == 0 then
    say("epoch %d loss %.4f accuracy %.4f seconds %.3f", epoch, loss(values, train_pixels, train_labels),
      accuracy(values, test_pixels, test_labels), os.time() - begun)
  end
end
kv:barrier()
kv:pull(KEYS, values)
if rank == 0 then
  say("final accuracy %.4f seconds %.3f", accuracy(values, test_pixels, test_labels), os.time() - begun)
end
node:shutdown()
