--- The model of both examples: a network with one hidden layer, trained on the images of data/digits.csv.gz.

require 'torch'

local digits = {PIXELS = 64, HIDDEN = 32, CLASSES = 10}

local DATA = (arg[0]:match("^(.*/)") or "./") .. "../../data/digits.csv.gz"

-- ------------------------------------------------------------------ images

--- Returns {inputs = rows of pixels, labels = 1 .. 10} for training, then for testing: every fourth image.
function digits.load()
  local sets = {train = {rows = {}, labels = {}}, test = {rows = {}, labels = {}}}
  local file = assert(io.popen("gzip -dc '" .. DATA .. "'"))
  local count = 0
  for line in file:lines() do
    local row = {}
    for number in line:gmatch("%d+") do row[#row + 1] = tonumber(number) end
    local set = count % 4 == 3 and sets.test or sets.train
    set.labels[#set.labels + 1] = table.remove(row) + 1
    set.rows[#set.rows + 1] = row
    count = count + 1
  end
  file:close()
  assert(count > 0, "there are no images in " .. DATA)
  local function tensors(set) return {inputs = torch.Tensor(set.rows):div(16), labels = torch.LongTensor(set.labels)} end
  return tensors(sets.train), tensors(sets.test)
end

--- The images of node `index` of n. The shares are uneven: the last node has nearly twice as many as the first.
function digits.share(set, index, n)
  local total, before, own = 0, 0, 0
  for i = 1, n do
    local weight = n + i
    total = total + weight
    if i < index then before = before + weight end
    if i == index then own = weight end
  end
  local count = #set.labels:totable()
  local first = math.floor(count * before / total)
  local last = math.floor(count * (before + own) / total)
  return {inputs = set.inputs:narrow(1, first + 1, last - first), labels = set.labels:narrow(1, first + 1, last - first)}
end

--- Returns batches(epoch), a function that returns the order of a node's images: a list of LongTensors of `size`
--- positions. Images that do not fill a batch are skipped in this epoch.
function digits.batcher(set, size, index)
  local count = set.labels:size(1)
  return function(epoch)
    torch.manualSeed(1000 * epoch + index)
    local order, batches = torch.randperm(count):long(), {}
    for first = 1, count - size + 1, size do batches[#batches + 1] = order:narrow(1, first, size) end
    return batches
  end
end

function digits.pick(set, positions)
  return {inputs = set.inputs:index(1, positions), labels = set.labels:index(1, positions)}
end

-- ------------------------------------------------------------------ the network

--- Initial parameters, the same on all nodes. Gradients have the same form.
function digits.parameters()
  torch.manualSeed(0)
  return {
    hidden = {torch.randn(digits.PIXELS, digits.HIDDEN):mul(0.1), torch.zeros(digits.HIDDEN)},
    linear = {torch.randn(digits.HIDDEN, digits.CLASSES):mul(0.1), torch.zeros(digits.CLASSES)},
  }
end

local function rows(vector, count) return vector:view(1, -1):expand(count, vector:size(1)) end

--- Returns the class probabilities of each image, and the activations of the hidden layer.
function digits.predict(params, inputs)
  local count = inputs:size(1)
  local hidden = torch.tanh(torch.mm(inputs, params.hidden[1]) + rows(params.hidden[2], count))
  local scores = torch.mm(hidden, params.linear[1]) + rows(params.linear[2], count)
  scores = scores - torch.max(scores, 2):expandAs(scores)
  local powers = torch.exp(scores)
  return torch.cdiv(powers, torch.sum(powers, 2):expandAs(powers)), hidden
end

--- Returns the gradients of the mean cross entropy over a batch, and the predictions.
function digits.gradients(params, batch)
  local count = batch.labels:size(1)
  local prediction, hidden = digits.predict(params, batch.inputs)
  local errors = prediction:clone()
  for i = 1, count do
    local label = batch.labels[i]
    errors[i][label] = errors[i][label] - 1
  end
  errors:div(count)
  local back = torch.cmul(torch.mm(errors, params.linear[1]:t()), torch.cmul(hidden, hidden):mul(-1):add(1))
  return {
    hidden = {torch.mm(batch.inputs:t(), back), torch.sum(back, 1):view(-1)},
    linear = {torch.mm(hidden:t(), errors), torch.sum(errors, 1):view(-1)},
  }, prediction
end

--- params -= rate * grads
function digits.descend(params, grads, rate)
  for layer, own in pairs(params) do
    for i = 1, 2 do own[i]:add(-rate, grads[layer][i]) end
  end
end

-- ------------------------------------------------------------------ accuracy

--- An empty confusion matrix: a row for each class, a column for each prediction.
function digits.confusion() return torch.LongTensor(digits.CLASSES, digits.CLASSES):zero() end

function digits.count(confusion, prediction, labels)
  local _, guesses = torch.max(prediction, 2)
  for i = 1, labels:size(1) do
    local label, guess = labels[i], guesses[i][1]
    confusion[label][guess] = confusion[label][guess] + 1
  end
end

function digits.right(confusion) return confusion:trace() / math.max(1, confusion:sum()) end

--- The confusion matrix as text.
function digits.text(confusion)
  local lines = {"taken for   0    1    2    3    4    5    6    7    8    9"}
  for label = 1, digits.CLASSES do
    local cells = {("%8d "):format(label - 1)}
    for guess = 1, digits.CLASSES do cells[#cells + 1] = ("%4d"):format(confusion[label][guess]) end
    lines[#lines + 1] = table.concat(cells, " ")
  end
  lines[#lines + 1] = (" + global correct: %.2f%%"):format(100 * digits.right(confusion))
  return table.concat(lines, "\n")
end

function digits.accuracy(params, set)
  local confusion = digits.confusion()
  digits.count(confusion, (digits.predict(params, set.inputs)), set.labels)
  return digits.right(confusion)
end

--- The mean cross entropy.
function digits.loss(params, set)
  local prediction, sum = (digits.predict(params, set.inputs)):totable(), 0
  for i, label in ipairs(set.labels:totable()) do sum = sum - math.log(prediction[i][label]) end
  return sum / #prediction
end

-- ------------------------------------------------------------------ helpers of the scripts

--- Parses the command line. The options are those of torch-distlearn's examples.
function digits.options(title, more)
  local command = torch.CmdLine()
  command:text(title)
  command:option("--nodeIndex", "", "number of this node; default: from the launcher")
  command:option("--numNodes", "", "number of nodes; default: from the launcher")
  command:option("--epochs", 30, "number of epochs")
  command:option("--batch", 8, "batch size of each node")
  command:option("--rate", 0.3, "learning rate")
  command:option("--save", "", "a folder to write the parameters to")
  for _, option in ipairs(more or {}) do command:option(option[1], option[2], option[3]) end
  return command:parse(arg)
end

--- Writes the parameters, one number per line, for comparison between programs.
function digits.save(folder, node, params)
  if folder == "" then return end
  local file = assert(io.open(("%s/parameters-%d.txt"):format(folder, node), "w"))
  for _, layer in ipairs{"hidden", "linear"} do
    for _, tensor in ipairs(params[layer]) do
      for _, value in ipairs(tensor:contiguous():view(-1):totable()) do file:write(("%.17g\n"):format(value)) end
    end
  end
  file:close()
end

return digits
