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
-- Arrays are tables of numbers (f32, or the dtype in their field dtype = polyverso.MV_F64), FFI memory,
-- {pointer = p, count = n}, or contiguous Torch tensors.

local capi = require("polyverso.capi")
local foreign = require("polyverso.foreign")
local json = require("polyverso.json")

local Gossip = {}
Gossip.__index = Gossip

local function memory(array) return foreign.is_tensor(array) and foreign.memory(array) or array end

--- Torch tensors of two or more dimensions are added with their shape.
local function add(handle, array)
  local dims = foreign.is_tensor(array) and array:dim() or 0
  if dims < 2 or dims > 8 then return capi.mv_gossip_add(handle, memory(array)) end
  local shape = {}
  for i = 1, dims do shape[i] = tonumber(array:size(i)) end
  return capi.mv_gossip_add_shaped(handle, memory(array), shape)
end

--- Publishes these arrays as one snapshot, with this node's clock, which grows by 1.
function Gossip:publish(arrays, loss)
  local published, why = pcall(function()
    for _, array in ipairs(arrays) do add(self.handle, array) end
    capi.mv_gossip_publish(self.handle, loss)
  end)
  if published then return end
  pcall(capi.mv_gossip_publish, self.handle, 0 / 0)  -- a loss of NaN drops the snapshot that is being built
  error(why, 0)
end

--- Begins to fetch a peer's snapshot, with the configuration's fetch_probability. Returns whether a fetch began.
function Gossip:fetch_start()
  self.fetching = capi.mv_gossip_fetch_start(self.handle) == 1
  return self.fetching
end

--- Waits for the fetch. Returns a table with factor, peer, peer_clock, peer_loss and bytes; nil if no peer had one.
function Gossip:fetch_wait(loss)
  local fetched = capi.mv_gossip_fetch_wait(self.handle, loss)
  self.fetching = false
  return fetched.got == 1 and fetched or nil
end

--- The next of the fetched arrays: average() averages it into `array` in place, read() copies it there.
function Gossip:average(array) capi.mv_gossip_average(self.handle, memory(array)) end
function Gossip:read(array) capi.mv_gossip_read(self.handle, memory(array)) end

--- update_send() and update_wait() are the two calls around a training step. A fetch that is still under way continues.
function Gossip:update_send(arrays, loss)
  self:publish(arrays, loss)
  return self.fetching or self:fetch_start()
end

--- Returns the factor, which is the peer's share of the average; 0 without a peer.
function Gossip:update_wait(arrays, loss)
  local fetched = self:fetch_wait(loss)
  if not fetched then return 0 end
  for _, array in ipairs(arrays) do self:average(array) end
  return fetched.factor
end

--- A table with clock, loss, last factor, disagreement, address and other fields, and with `peers`, a table for each
-- peer, with its score. tostring() gives the same state as text.
function Gossip:state() return json.decode(capi.mv_gossip_state_text(self.handle, capi.MV_JSON)) end
function Gossip:peers() return self:state().peers end
function Gossip:__tostring() return capi.mv_gossip_state_text(self.handle, 0) end
--- The state in Prometheus's text format.
function Gossip:metrics() return capi.mv_gossip_metrics_text(self.handle) end

function Gossip:add_peer(name, host, port) capi.mv_gossip_add_peer(self.handle, name, host, port) end
function Gossip:remove_peer(name) capi.mv_gossip_remove_peer(self.handle, name) end
--- Sets the node's clock, for example after loading a checkpoint.
function Gossip:set_clock(clock) capi.mv_gossip_set_clock(self.handle, clock) end
function Gossip:close()
  self.guard.open = false
  capi.mv_gossip_close(self.handle)
end

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

local function open(call)
  return function(config, name)
    local handle = call(config, name)
    return setmetatable({handle = handle, name = name, guard = guard(handle)}, Gossip)
  end
end

--- The state of all nodes in a configuration file: as text, or with `json` as JSON text.
local function status(config, json) return capi.mv_gossip_status_text(config, json and capi.MV_JSON or 0) end

return {open = open(capi.mv_gossip_open), open_text = open(capi.mv_gossip_open_text), status = status}
