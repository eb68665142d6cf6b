--- Gossip: every process trains a model of its own, and sometimes averages it with a peer's.
--
--     local gossip = require("polyverso.gossip")
--     local node = gossip.open("nodes.yaml", "w1")            -- or gossip.open_text(yaml, name)
--     for batch in batches do
--       node:update_send({weights, biases}, loss)             -- publishes them, and begins to fetch a peer's
--       loss = train(batch)
--       node:update_wait({weights, biases}, loss)             -- averages in place with the fetched ones
--     end
--
-- Arrays are tables of numbers (f32, or the dtype in their field dtype = polyverso.MV_F64), tables of rows of numbers,
-- polyverso.tensor's tensors, also on CUDA devices, FFI memory, {pointer = p, count = n}, or Torch tensors. Peers' arrays
-- must have the same dimensions, where both sides know them.

local arrays = require("polyverso.arrays")
local capi = require("polyverso.capi")
local data = require("polyverso.data")
local foreign = require("polyverso.foreign")
local json = require("polyverso.json")
local objects = require("polyverso.objects")
local tensor = require("polyverso.tensor")

---@class polyverso.Gossip
---@field handle integer the mv_gossip for the C functions
---@field name string
local Gossip = {}
Gossip.__index = Gossip

-- An array as the C API takes it, and its dimensions if it knows two or more.
local function given(array, what)
  if type(array) == "string" or type(array) == "number" then
    capi.raise(capi.MV_EDTYPE, ("%s: a list of numbers, a tensor or FFI memory is needed, not a %s"):format(what, type(array)))
  end
  if foreign.is_tensor(array) then array = arrays.one(array) end
  if tensor.is_tensor(array) then
    local shape = array:shape()
    return array, #shape > 1 and shape or nil
  end
  if type(array) == "table" and array.pointer then return array, array.shape and #array.shape > 1 and array.shape or nil end
  local flat, shape = data.flat(array, what)
  return flat, shape or arrays.shape_of_memory(array)
end

local function add(handle, array, number)
  local memory, shape = given(array, ("gossip: array %d"):format(number))
  if not shape or #shape > 8 then return capi.mv_gossip_add(handle, memory) end
  capi.mv_gossip_add_shaped(handle, memory, shape)
end

-- Runs call(handle, memory), which writes to the array's memory.
local function written(handle, array, call)
  local copies = {}
  local is_nested = type(array) == "table" and not array.pointer and type(array[1]) == "table" and not tensor.is_tensor(array)
  if not is_nested or foreign.is_tensor(array) then
    call(handle, foreign.is_tensor(array) and arrays.one(array, copies) or array)
    return arrays.copy_back(copies)
  end
  local flat, n = data.flat(array, "gossip: the array"), 0
  call(handle, flat)
  for _, row in ipairs(array) do
    for j = 1, #row do row[j] = flat[n + j] end
    n = n + #row
  end
end

local function checked_loss(loss)
  if type(loss) == "number" then return loss end
  capi.raise(capi.MV_EINVAL, ("gossip: the loss must be a number, not %s"):format(loss == nil and "nil" or "a " .. type(loss)))
end

--- Publishes these arrays as one snapshot, with this node's clock, which grows by 1.
---@param list polyverso.Values[]
---@param loss number
function Gossip:publish(list, loss)
  if type(list) ~= "table" or tensor.is_tensor(list) or foreign.is_tensor(list) then
    capi.raise(capi.MV_EDTYPE, "gossip: a list of arrays is needed, such as {weights, biases}, not a single " .. type(list))
  end
  local published, why = pcall(function()
    for number, array in ipairs(list) do add(self.handle, array, number) end
    capi.mv_gossip_publish(self.handle, checked_loss(loss))
  end)
  if published then return end
  pcall(capi.mv_gossip_publish, self.handle, 0 / 0)  -- a loss of NaN drops the snapshot that is being built
  capi.raise_again(why)
end

--- Begins to fetch a peer's snapshot, with the configuration's fetch_probability. Returns whether a fetch began.
---@return boolean
function Gossip:fetch_start()
  self.fetching = capi.mv_gossip_fetch_start(self.handle) == 1
  return self.fetching
end

--- Waits for the fetch. Returns a table with factor, peer, peer_clock, peer_loss and bytes; nil if no peer had one.
---@param loss number
---@return polyverso.Fetched?
function Gossip:fetch_wait(loss)
  local number = checked_loss(loss)
  local waited, fetched = pcall(capi.mv_gossip_fetch_wait, self.handle, number)
  self.fetching = not waited and (type(fetched) ~= "table" or fetched.code == capi.MV_EINTR)  -- the fetch continues
  if not waited then capi.raise_again(fetched) end
  return fetched.got == 1 and fetched or nil
end

--- Averages `array` in place with the next of the fetched arrays.
---@param array polyverso.Values changed in place
function Gossip:average(array) written(self.handle, array, capi.mv_gossip_average) end
--- Copies the next of the fetched arrays into `array`.
---@param array polyverso.Values changed in place
function Gossip:read(array) written(self.handle, array, capi.mv_gossip_read) end

--- update_send() and update_wait() are the two calls around a training step. A fetch that is still under way continues.
---@param list polyverso.Values[]
---@param loss number
---@return boolean fetching
function Gossip:update_send(list, loss)
  self:publish(list, loss)
  return self.fetching or self:fetch_start()
end

--- Returns the factor, which is the peer's share of the average; 0 without a peer.
---@param list polyverso.Values[] changed in place
---@param loss number
---@return number factor
function Gossip:update_wait(list, loss)
  local fetched = self:fetch_wait(loss)
  if not fetched then return 0 end
  for _, array in ipairs(list) do self:average(array) end
  return fetched.factor
end

--- A table with clock, loss, last factor, disagreement, address and other fields, and with `peers`, a table for each
--- peer, with its score. tostring() gives the same state as text.
---@return table
function Gossip:state() return json.decode(capi.mv_gossip_state_text(self.handle, capi.MV_JSON)) end
--- The peers, a list of tables, from state().
---@return table[]
function Gossip:peers() return self:state().peers end
function Gossip:__tostring()
  if self.ended then return objects.text(self, "Gossip", self.name) end
  return capi.mv_gossip_state_text(self.handle, 0)
end
--- How messages name the node.
---@return string
function Gossip:described() return ('the gossip node "%s"'):format(self.name) end
--- The state in Prometheus's text format.
---@return string
function Gossip:metrics() return capi.mv_gossip_metrics_text(self.handle) end

--- Adds a peer of this node, or changes its address.
---@param name string
---@param host string
---@param port integer
function Gossip:add_peer(name, host, port) capi.mv_gossip_add_peer(self.handle, name, host, port) end
--- Removes a peer of this node.
---@param name string
function Gossip:remove_peer(name) capi.mv_gossip_remove_peer(self.handle, name) end
--- Sets the node's clock, for example after loading a checkpoint.
---@param clock number
function Gossip:set_clock(clock) capi.mv_gossip_set_clock(self.handle, clock) end
--- Closes the node and releases its port. A second close() does nothing.
function Gossip:close()
  if self.ended then return end
  self.guard.open, self.ended = false, "after close()"
  capi.mv_gossip_close(self.handle)
end

objects.finish("gossip", Gossip, {close = true})

--- Closes the node when it is garbage-collected, unless it was closed. Before Lua 5.2 only proxies have finalizers.
local function guard(handle)
  local guarded = {open = true}
  local function drop()
    if guarded.open then pcall(capi.mv_gossip_close, handle) end
    guarded.open = false
  end
  if not newproxy then return setmetatable(guarded, {__gc = drop}) end
  guarded.proxy = newproxy(true)
  getmetatable(guarded.proxy).__gc = drop
  return guarded
end

---@param call fun(config: string, name: string): integer
local function open(call)
  return function(config, name)
    local handle = call(config, name)
    return setmetatable({handle = handle, name = name, guard = guard(handle)}, Gossip)
  end
end

--- The state of all nodes in a configuration file: as text, or with `as_json` as JSON text.
---@param config string path of a YAML file
---@param as_json? boolean
---@return string
local function status(config, as_json) return capi.mv_gossip_status_text(config, as_json and capi.MV_JSON or 0) end

return {
  --- Opens the node `name` of a configuration, a YAML file.
  ---@type fun(path: string, name: string): polyverso.Gossip
  open = open(capi.mv_gossip_open),
  --- The same for a configuration's text.
  ---@type fun(yaml: string, name: string): polyverso.Gossip
  open_text = open(capi.mv_gossip_open_text),
  status = status,
}
