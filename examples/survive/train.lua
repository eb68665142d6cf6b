-- A worker of the demo, in plain Lua: takes steps of softmax regression as it is told. train.py has the explanation; train.py and
-- train.pl are equivalent.
--
--     train.lua PLACE

local polyverso = require("polyverso")

local PIXELS, DIGITS, PLACES, BATCH, RATE = 64, 10, 4, 16, 0.02
local DATA = (arg[0]:match("^(.*/)") or "./") .. "../../data/digits.csv.gz"

-- An image is {inputs, label}; its inputs are 64 pixels of 0 .. 1 and a constant 1.
local function read_images()
  local images = {}
  local file = assert(io.popen("gzip -dc '" .. DATA .. "'"))
  for line in file:lines() do
    local inputs, label = {}, nil
    for number in line:gmatch("%d+") do
      if #inputs < PIXELS then inputs[#inputs + 1] = tonumber(number) / 16 else label = tonumber(number) end
    end
    inputs[PIXELS + 1] = 1
    images[#images + 1] = {inputs = inputs, label = label}
  end
  file:close()
  assert(#images > 0, "there are no images in " .. DATA)
  return images
end

-- The probabilities of the digits, less 1 for the right one.
local function errors_of(weights, image)
  local errors, highest, sum = {}, -math.huge, 0
  for d = 1, DIGITS do
    errors[d] = 0
    for i, value in ipairs(image.inputs) do errors[d] = errors[d] + value * weights[i][d] end
    highest = math.max(highest, errors[d])
  end
  for d = 1, DIGITS do
    errors[d] = math.exp(errors[d] - highest)
    sum = sum + errors[d]
  end
  for d = 1, DIGITS do errors[d] = errors[d] / sum end
  errors[image.label + 1] = errors[image.label + 1] - 1
  return errors
end

local place = tonumber(arg[1])
local images = read_images()
local node = polyverso.init() -- the environment has the cluster's address and this worker's rank
local shared = node:matrix{rows = PIXELS + 1, cols = DIGITS + PLACES, name = "weights"}
io.stdout:setvbuf("line")
print("ready")
for line in io.lines() do
  local weights, change = shared:get(), {}
  for i = 1, PIXELS + 1 do
    change[i] = {}
    for column = 1, DIGITS + PLACES do change[i][column] = 0 end
    change[i][DIGITS + 1 + place] = 1 -- every row counts the steps of each worker
  end
  for k = tonumber(line) * BATCH, (tonumber(line) + 1) * BATCH - 1 do
    local image = images[k % #images + 1]
    local errors = errors_of(weights, image)
    for i, value in ipairs(image.inputs) do
      for d = 1, DIGITS do change[i][d] = change[i][d] - RATE / BATCH * value * errors[d] end
    end
  end
  shared:add(change)
  print(line)
end
node:shutdown()
