-- Word vectors by skip-gram with negative sampling: one worker, in LuaJIT with FFI arrays. train.py and train.pl are
-- equivalent; train.py describes the method.
--
--     polyverso run -n 3 -- luajit examples/lm/train.lua [--folder build/lm] [--epochs 10] [--seed 1] [--report 1]
--                                                        [--save-every ROUNDS] [--resume 1]

local ffi = require("ffi")
local polyverso = require("polyverso")

local DIMENSIONS = 64
local WINDOW = 5 -- words on each side, at most; each centre word draws 1 .. WINDOW
local NEGATIVES = 5 -- for each pair of words
local POOL = 64 -- drawn per block and shared by all its pairs, with a weight: their vectors are sent once
local SAMPLE = 2e-4 -- words more frequent than this are subsampled
local BLOCK = 1000 -- words of the text
local STALENESS = 2 -- how many blocks the fastest worker may be ahead of the slowest
local UPDATER = "adagrad rate=0.1"

local exp, log, max, min, random = math.exp, math.log, math.max, math.min, math.random

ffi.cdef[[
typedef struct { long tv_sec, tv_nsec; } lm_timespec;
int clock_gettime(int clock, lm_timespec *now);
]]

local function now()
  local time = ffi.new("lm_timespec")
  ffi.C.clock_gettime(1, time) -- CLOCK_MONOTONIC
  return tonumber(time.tv_sec) + 1e-9 * tonumber(time.tv_nsec)
end

local function content(path)
  local file = assert(io.open(path, "rb"), "train.lua: there is no " .. path .. ": run corpus.py first")
  local text = file:read("*a")
  file:close()
  return text
end

-- Returns the text as numbers, and the distributions to draw from. Arrays are FFI memory, indexed from 0.
local function read_corpus(folder)
  local counts = {}
  for count in content(folder .. "/words.txt"):gmatch(" (%d+)\n") do counts[#counts + 1] = tonumber(count) end
  local text = content(folder .. "/tokens.i32")
  local corpus = {words = #counts, count = #text / 4}
  corpus.tokens = ffi.new("int32_t[?]", corpus.count)
  ffi.copy(corpus.tokens, text, #text)
  corpus.blocks = math.ceil(corpus.count / BLOCK)
  corpus.kept = ffi.new("double[?]", corpus.words)
  corpus.noise = ffi.new("double[?]", corpus.words)
  local sum = 0
  for word = 0, corpus.words - 1 do
    local share = SAMPLE * corpus.count / counts[word + 1]
    corpus.kept[word] = math.sqrt(share) + share
    sum = sum + counts[word + 1] ^ 0.75
    corpus.noise[word] = sum
  end
  return corpus
end

-- The first word whose cumulative noise is above `at`.
local function drawn(corpus, at)
  local low, high = 0, corpus.words - 1
  while low < high do
    local middle = math.floor((low + high) / 2)
    if corpus.noise[middle] < at then low = middle + 1 else high = middle end
  end
  return low
end

-- Fills block.rows with the kept words of block `number`, followed by the pool of negatives, and block.reach with the
-- window of each word. The draws depend only on seed and number, so a resumed training repeats those of the killed one.
local function draw(block, corpus, seed, number)
  math.randomseed(seed * 1000003 + number)
  local first = number % corpus.blocks * BLOCK
  local count = 0
  for at = first, min(first + BLOCK, corpus.count) - 1 do
    local word = corpus.tokens[at]
    if random() < corpus.kept[word] then
      block.rows[count] = word
      block.reach[count] = random(WINDOW)
      count = count + 1
    end
  end
  local whole = corpus.noise[corpus.words - 1]
  for at = count, count + POOL - 1 do block.rows[at] = drawn(corpus, random() * whole) end
  block.count = count
end

local function dot(a, b)
  local sum = 0
  for k = 0, DIMENSIONS - 1 do sum = sum + a[k] * b[k] end
  return sum
end

-- Adds the gradients of one pair, whose loss has this slope.
local function spread(slope, middle, other, by_middle, by_other)
  for k = 0, DIMENSIONS - 1 do
    by_middle[k] = by_middle[k] + slope * other[k]
    by_other[k] = by_other[k] + slope * middle[k]
  end
end

-- Computes the gradients of the loss by the rows of block.middles and block.around, into block.by_middles and
-- block.by_around. Returns the loss and its number of pairs; see train.py.
local function gradients(block)
  local count, bytes = block.count, 4 * DIMENSIONS
  ffi.fill(block.by_middles, bytes * count)
  ffi.fill(block.by_around, bytes * (count + POOL))
  local loss, all_pairs = 0, 0
  for i = 0, count - 1 do
    local middle, by_middle = block.middles + i * DIMENSIONS, block.by_middles + i * DIMENSIONS
    local reach, pairs = block.reach[i], 0
    for j = max(0, i - reach), min(count - 1, i + reach) do
      if j ~= i then
        local other = block.around + j * DIMENSIONS
        local likely = 1 / (1 + exp(-dot(middle, other)))
        spread(likely - 1, middle, other, by_middle, block.by_around + j * DIMENSIONS)
        loss = loss - log(likely)
        pairs = pairs + 1
      end
    end
    local weight = NEGATIVES / POOL * pairs
    for j = count, count + POOL - 1 do
      local other = block.around + j * DIMENSIONS
      local likely = 1 / (1 + exp(-dot(middle, other)))
      spread(weight * likely, middle, other, by_middle, block.by_around + j * DIMENSIONS)
      loss = loss - weight * log(1 - min(likely, 0.9999999))
    end
    all_pairs = all_pairs + pairs
  end
  return loss, all_pairs
end

local function say(...)
  io.write(string.format(...), "\n")
  io.flush()
end

local function sum_of(list)
  local sum = 0
  for _, value in ipairs(list) do sum = sum + value end
  return sum
end

-- Returns a function that worker 0 calls after each block. It prints the progress of all workers every `seconds`
-- seconds.
local function reporter(progress, total, seconds)
  local begun, first, loss, pairs, mean = now(), sum_of(progress:get()), 0, 0, 0 / 0
  local last = begun
  return function(more_loss, more_pairs, at_once)
    loss, pairs = loss + more_loss, pairs + more_pairs
    if now() < last + seconds and not at_once then return end
    last = now()
    if pairs > 0 then mean = loss / pairs end
    local done = min(sum_of(progress:get()), total)
    say("%5.1f %%  block %d of %d  loss %.4f  %.0f words/s  %.1f s", 100 * done / total, done, total, mean,
      (done - first) * BLOCK / (last - begun), last - begun)
    loss, pairs = 0, 0
  end
end

-- Allocates the memory of a block and its rows, which is reused. Pointers, because calls use a part of each array.
local function new_block()
  local block = {reach = ffi.new("int32_t[?]", BLOCK), memory = {}}
  local function room(name, element, count)
    block.memory[name] = ffi.new(element .. "[?]", count) -- a pointer alone would not keep the array alive
    block[name] = ffi.cast(element .. " *", block.memory[name])
  end
  room("rows", "int64_t", BLOCK + POOL)
  for _, name in ipairs{"middles", "around", "by_middles", "by_around"} do
    room(name, "float", (BLOCK + POOL) * DIMENSIONS)
  end
  return block
end

local function train_block(block, inputs, outputs)
  local function some(memory, count) return {pointer = memory, count = count} end
  local count = block.count
  local words, around = some(block.rows, count), some(block.rows, count + POOL)
  inputs:get{rows = words, out = some(block.middles, count * DIMENSIONS)}
  outputs:get{rows = around, out = some(block.around, (count + POOL) * DIMENSIONS)}
  local loss, pairs = gradients(block)
  -- A word can occur twice: the library sums its gradients.
  inputs:add(some(block.by_middles, count * DIMENSIONS), {rows = words, wait = false})
  outputs:add(some(block.by_around, (count + POOL) * DIMENSIONS), {rows = around, wait = false})
  return loss, pairs
end

local function save_vectors(inputs, words, path)
  local ids, vectors = ffi.new("int64_t[?]", words), ffi.new("float[?]", words * DIMENSIONS)
  for word = 0, words - 1 do ids[word] = word end
  inputs:peek{rows = ids, out = vectors}
  local file = assert(io.open(path, "wb"))
  file:write(ffi.string(vectors, ffi.sizeof(vectors)))
  file:close()
  say("trained: see nearest.py for what is in %s", path)
end

local function train(node, options)
  local corpus = read_corpus(options.folder)
  local saved = options.folder .. "/checkpoints"
  if options.resume == 1 then node:load(saved) end -- creating the tables below then finds them with their values
  local function sparse(spec)
    spec.rows, spec.cols, spec.updater, spec.staleness = corpus.words, DIMENSIONS, UPDATER, STALENESS
    return node:sparse(spec)
  end
  local inputs = sparse{name = "input", initial_range = 0.5 / DIMENSIONS, seed = options.seed}
  local outputs = sparse{name = "output"}
  local me, workers = node:worker_id(), node:num_workers()
  -- The rounds that each worker has done. Saved together with the vectors.
  local progress = node:array{size = workers, dtype = "i64", name = "progress"}

  local total = options.epochs * corpus.blocks
  local rounds = math.ceil(total / workers)
  local report = reporter(progress, total, options.report)
  local block = new_block()
  for round = progress:get()[me + 1], rounds - 1 do
    local number, loss, pairs = round * workers + me, 0, 0
    draw(block, corpus, options.seed, number)
    if number < total and block.count > 1 then loss, pairs = train_block(block, inputs, outputs) end
    inputs:clock()
    outputs:clock()
    progress:add({1}, {rows = {me}, wait = false})
    if me == 0 then report(loss, pairs) end
    if options["save-every"] > 0 and (round + 1) % options["save-every"] == 0 then
      node:save(saved, {keep = 2})
      if me == 0 then say("saved after round %d of %d", round + 1, rounds) end
    end
  end
  node:barrier()
  if me == 0 then
    report(0, 0, true)
    save_vectors(inputs, corpus.words, options.folder .. "/vectors.f32")
  end
end

local options = {epochs = 10, seed = 1, report = 1, ["save-every"] = 0, resume = 0}
options.folder = (arg[0]:match("^(.*/)") or "./") .. "../../build/lm"
for i = 1, #arg, 2 do
  local key = arg[i]:match("^%-%-([%a-]+)$")
  assert(options[key] and arg[i + 1], "usage: train.lua [--folder F] [--epochs N] [--seed N] [--report S] "
    .. "[--save-every N] [--resume 1]")
  options[key] = key == "folder" and arg[i + 1] or tonumber(arg[i + 1])
end

local node = polyverso.init()
train(node, options)
node:shutdown()
