-- What a call costs from Lua, in a cluster of one process: the operations of caller.py; the dialogue of batch.h.
-- LuaJIT lends FFI memory; plain Lua lends a tensor to add, and gets into a table.

local polyverso = require("polyverso")
local tensor = require("polyverso.tensor")

local WARM_UP, FEWEST_SAMPLES = 0.1, 3

local has_ffi, ffi = pcall(require, "ffi")

-- Seconds. Plain Lua knows only the processor's; it is the same where nothing waits, as in a cluster of one.
local clock = os.clock
if has_ffi then
  ffi.cdef("typedef struct { long seconds, nanoseconds; } bench_time; int clock_gettime(int, bench_time *);")
  local time = ffi.new("bench_time")
  clock = function()
    ffi.C.clock_gettime(1, time)  -- CLOCK_MONOTONIC
    return tonumber(time.seconds) + 1e-9 * tonumber(time.nanoseconds)
  end
end

local function fail(text)
  print(('{"error": "%s"}'):format(text:gsub('[%c"\\]', "'")))
  os.exit(1)
end

local node = polyverso.init()
local count, shared, data, out = 0, nil, nil, nil
local matrix, keyvalue = node:matrix{rows = 1000, cols = 4}, node:keyvalue{cols = 4}
local ids = tensor.copy_of({7, 300, 12, 999}, "i64")
local block, received = tensor.ones{4, 4}, tensor.zeros{4, 4}

local function make(wanted)
  if shared then shared:destroy() end
  count = wanted
  shared = node:array{size = count}
  if has_ffi then
    data, out = ffi.new("float[?]", count), nil
    for i = 0, count - 1 do data[i] = 1 end
  else
    data, out = tensor.ones{count}, {n = count}
  end
end

-- Only for gets, so that the driver can tell what memory an add takes.
local function room()
  if has_ffi and not out then out = ffi.new("float[?]", count) end
  return out
end

local operations = {
  add = function(times)
    local add, handle = polyverso.mv_table_add, shared.handle
    for _ = 1, times do add(handle, data) end
  end,
  get = function(times)
    local get, handle, to = polyverso.mv_table_get, shared.handle, room()
    for _ = 1, times do get(handle, to) end
  end,
  method_add = function(times)
    for _ = 1, times do shared:add(data) end
  end,
  method_get = function(times)
    local how = {out = room()}
    for _ = 1, times do shared:get(how) end
  end,
}

-- On four rows or keys.
local some = {
  rows_add = function(times)
    local how = {rows = ids}
    for _ = 1, times do matrix:add(block, how) end
  end,
  rows_get = function(times)
    local how = {rows = ids, out = received}
    for _ = 1, times do matrix:get(how) end
  end,
  keys_add = function(times)
    local how = {keys = ids}
    for _ = 1, times do keyvalue:add(block, how) end
  end,
  keys_get = function(times)
    local how = {keys = ids, out = received}
    for _ = 1, times do keyvalue:get(how) end
  end,
}

-- Returns the operation, and a function that checks the values after so many repetitions.
local function prepare_some(operation)
  local adds, of = operation:find("add"), operation:find("rows") and matrix or keyvalue
  of:set(block, {rows = ids})
  received:fill(0)
  return some[operation], function(done)
    if adds then of:get{rows = ids, out = received} end
    local want = 1 + (adds and done or 0)
    if received:min():item() ~= want or received:max():item() ~= want then
      fail(("%s: %s after %d adds of 1 to 1"):format(operation, tostring(received), done))
    end
  end
end

local function prepare_whole(operation, bytes)
  if count ~= bytes / 4 then make(math.floor(bytes / 4)) end
  shared:set({0}, {rows = {count - 1}})
  return operations[operation] or fail("unknown operation " .. operation), function(done)
    local last = shared:get({rows = {count - 1}})[1]
    if operation:find("add") and last ~= done then fail(("%s: %s after %d adds of 1"):format(operation, last, done)) end
  end
end

local function measure(repeat_it, seconds, block)
  local done, samples, begun = 0, {}, clock()
  repeat
    repeat_it(block)
    done = done + block
  until clock() >= begun + WARM_UP * seconds
  local now = clock()
  local finish = now + seconds
  while now < finish or #samples < FEWEST_SAMPLES do
    repeat_it(block)
    done = done + block
    local before = now
    now = clock()
    samples[#samples + 1] = (now - before) / block
  end
  table.sort(samples)
  return done, samples
end

local function answer(samples, block)
  local sum = 0
  for _, sample in ipairs(samples) do sum = sum + sample end
  local p99 = samples[math.floor((#samples - 1) * 0.99) + 1]
  print(('{"median": %.9g, "mean": %.9g, "least": %.9g, "p99": %.9g, "count": %d}'):format(
    samples[math.floor(#samples / 2) + 1], sum / #samples, samples[1], p99, #samples * block))
end

io.stdout:setvbuf("line")
print('{"ready": true}')
for line in io.lines() do
  local operation, bytes, seconds, block = line:match("(%S+) (%S+) (%S+) (%S+)")
  local repeat_it, check = (some[operation] and prepare_some or prepare_whole)(operation, bytes)
  local done, samples = measure(repeat_it, tonumber(seconds), tonumber(block))
  check(done)
  answer(samples, tonumber(block))
end
node:shutdown()
