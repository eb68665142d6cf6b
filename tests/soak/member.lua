-- One member of soak.py's clusters, in Lua: see member.py.

local distlearn = require("polyverso.distlearn")
local gossip = require("polyverso.gossip")
local group = require("polyverso.group")
local kvstore = require("polyverso.kvstore")
local polyverso = require("polyverso")
local tensor = require("polyverso.tensor")

local unpack = unpack or table.unpack
local KEYS = {"a", "b", "c"}
local CONSISTENCIES = {async = {}, sync = {staleness = 0}, stale = {staleness = 2}, merge = {merge = true}}
local SKIP = {}
local place = os.getenv("POLYVERSO_RANK")
local out = assert(io.open(os.getenv("SOAK") .. "/out-" .. place, "w"))
local commands = assert(io.open(os.getenv("SOAK") .. "/in-" .. place))
local node, number
local things, later = {}, {}

local function tell(...)
  local words = {...}
  for i, word in ipairs(words) do words[i] = tostring(word):gsub("\n", " ") end
  out:write(table.concat(words, " "), "\n")
  out:flush()
end

local function thing(name) return things[name] or error(SKIP, 0) end

local function ones(worker, size, width, value)
  local values = {}
  for i = 0, size - 1 do values[i + 1] = i % width == worker and value or 0 end
  return values
end

local function extremes(lists, width)
  local least, most, words = {}, {}, {}
  for _, values in ipairs(lists) do
    for i, value in ipairs(values) do
      local w = (i - 1) % width
      if not least[w] or value < least[w] then least[w] = value end
      if not most[w] or value > most[w] then most[w] = value end
    end
  end
  for w = 0, width - 1 do words[w + 1] = ("%g %g"):format(least[w], most[w]) end
  return table.concat(words, " ")
end

local function range_of(values)
  local least, most = math.huge, -math.huge
  for _, value in ipairs(values) do least, most = math.min(least, value), math.max(most, value) end
  return least, most
end

local function keys_below(size, first, step)
  local keys = {}
  for key = first, size - 1, step do keys[#keys + 1] = key end
  return keys
end

local calls = {}

function calls.init()
  node = polyverso.init()
  return node:worker_id()
end
function calls.table(name, kind, consistency, size, width)
  size, width = tonumber(size), tonumber(width)
  local spec = {name = name}
  for key, value in pairs(CONSISTENCIES[consistency]) do spec[key] = value end
  if kind == "array" then spec.size = size else spec.cols = 1 end
  things[name] = {made = node[kind](node, spec), size = size, width = width, has_keys = kind ~= "array"}
end
function calls.add(name, worker, how)
  local made, options = thing(name), {async = how == "async"}
  local values
  if made.has_keys then
    options.keys = keys_below(made.size, tonumber(worker), made.width)
    values = ones(0, #options.keys, 1, 1)
  else
    values = ones(tonumber(worker), made.size, made.width, 1)
  end
  local request = made.made:add(values, options)
  if request then later[#later + 1] = {number, request} end
end
function calls.wait()
  local waited = later
  later = {}
  for _, each in ipairs(waited) do
    local ended, failure = pcall(each[2].wait, each[2])
    if ended then tell(each[1], "ok") else tell(each[1], "error", failure.name, failure.text) end
  end
end
local function read(name, method)
  local made = thing(name)
  return extremes({made.made[method](made.made, {keys = made.has_keys and keys_below(made.size, 0, 1) or nil})}, made.width)
end
function calls.get(name) return read(name, "get") end
function calls.look(name) return read(name, "peek") end
function calls.peek(name, element) return ("%g"):format(thing(name).made:peek{rows = {tonumber(element)}}[1]) end
function calls.barrier() node:barrier() end
function calls.clock(name) thing(name).made:clock() end
function calls.status() return #node:status() end
function calls.store(kind, size, width)
  local made, zeros = kvstore.create(kind), {}
  for i = 1, #KEYS do zeros[i] = tensor.zeros{tonumber(size)} end
  made:init(KEYS, zeros)
  if made:rank() == 0 then made:set_optimizer("sgd rate=1") end
  if kind:find("^dist") then made:barrier() end
  things.store = {made = made, size = tonumber(size), width = tonumber(width)}
end
function calls.push(worker)
  local made, values = thing("store"), {}
  for i = 1, #KEYS do values[i] = tensor.copy_of(ones(tonumber(worker), made.size, made.width, -1)) end
  made.made:push(KEYS, values)
end
function calls.pull()
  local made, values, lists = thing("store"), {}, {}
  for i = 1, #KEYS do values[i] = tensor.zeros{made.size} end
  made.made:pull(KEYS, values)
  for i = 1, #KEYS do lists[i] = values[i]:to_list() end
  return extremes(lists, made.width)
end
function calls.group() things.group = group.open(node) end
function calls.reduce(count)
  local made, values = thing("group"), tensor.ones{tonumber(count)}
  made:allreduce(values)
  return ("%d %g %g"):format(made.size, values:min():get(), values:max():get())
end
function calls.shrink()
  local old = thing("group")
  things.group = old:shrink()
  old:close()
  return things.group.size
end
function calls.elastic(steps)
  local values = tensor.full({300}, node:worker_id())
  local strategy = distlearn.AllReduceEA(thing("group"), 2, 0.1)
  for _ = 1, tonumber(steps) do strategy:average_parameters{values} end
  strategy:synchronize_center{values}
  strategy:read_center{values}
  strategy:close()
  return ("%g %g"):format(values:min():get(), values:max():get())
end
function calls.gossip(name, value)
  local model = {}
  for i = 1, 1000 do model[i] = tonumber(value) end
  local made = gossip.open_text(("nodes: [{name: %s, host: 127.0.0.1, port: 0}]\ntimeout_ms: 500"):format(name), name)
  things.gossip = {made = made, model = model}
  return made:state().address:match(":(%d+)$")
end
function calls.peer(name, port) thing("gossip").made:add_peer(name, "127.0.0.1", tonumber(port)) end
function calls.step()
  local made = thing("gossip")
  made.made:update_send({made.model}, 1)
  local factor = made.made:update_wait({made.model}, 1)
  return ("%g %.9g %.9g"):format(factor, range_of(made.model))
end
function calls.shutdown() node:shutdown() end

local NEEDS_NO_NODE = {init = true, gossip = true, peer = true, step = true}
local REPEATED = {get = true, pull = true, barrier = true}

local function words_of(line)
  local words = {}
  for word in line:gmatch("%S+") do words[#words + 1] = word end
  return words
end

tell(0, "up")
for line in commands:lines() do
  local words = words_of(line)
  local name = words[2]
  number = words[1]
  if name == "quit" then break end
  tell(number, "begin")
  for left = 4, 0, -1 do
    local ended, result = pcall(function()
      if not node and not NEEDS_NO_NODE[name] then error(SKIP, 0) end
      return calls[name](unpack(words, 3))
    end)
    if ended then
      if not (later[#later] and later[#later][1] == number) then tell(number, "ok", result or "") end
      break
    end
    if result == SKIP then
      tell(number, "skip")
      break
    end
    if type(result) ~= "table" then error(result, 0) end
    local again = REPEATED[name] and left > 0 and result.name == "MV_EPEERLOST"
    tell(number, again and "again" or "error", result.name, result.text)
    if not again then break end
  end
end
