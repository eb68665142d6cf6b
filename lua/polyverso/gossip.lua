--- Gossip: every process trains a model of its own, and averages it now and then with a peer's.
--
--     local gossip = require("polyverso.gossip")
--     local node = gossip.open("nodes.yaml", "w1")            -- or gossip.open_text(yaml, name)
--     for batch in batches do
--       node:update_send({weights, biases}, loss)             -- lets the others see them, begins to fetch a peer's
--       loss = train(batch)
--       node:update_wait({weights, biases}, loss)             -- averages in place with what has come
--     end
--
-- Arrays are tables of numbers (f32, or what their field dtype = polyverso.MV_F64 says), FFI memory, {pointer = p, count = n}, or Torch's
-- tensors without gaps.

local capi = require("polyverso.capi")
local foreign = require("polyverso.foreign")
local json = require("polyverso.json")

local Gossip = {}
Gossip.__index = Gossip

local function memory(array) return foreign.is_tensor(array) and foreign.memory(array) or array end

--- Two dimensions and more of Torch's tensors are told.
local function add(handle, array)
  local dims = foreign.is_tensor(array) and array:dim() or 0
  if dims < 2 or dims > 8 then return capi.mv_gossip_add(handle, memory(array)) end
  local shape = {}
  for i = 1, dims do shape[i] = tonumber(array:size(i)) end
  return capi.mv_gossip_add_shaped(handle, memory(array), shape)
end

--- Lets peers see these arrays, as one version with this node's clock, which grows by 1.
function Gossip:publish(arrays, loss)
  local published, why = pcall(function()
    for _, array in ipairs(arrays) do add(self.handle, array) end
    capi.mv_gossip_publish(self.handle, loss)
  end)
  if published then return end
  pcall(capi.mv_gossip_publish, self.handle, 0 / 0)  -- drops what was added
  error(why, 0)
end

--- Whether a fetch began: fetch_probability decides.
function Gossip:fetch_start()
  self.fetching = capi.mv_gossip_fetch_start(self.handle) == 1
  return self.fetching
end

--- A table with factor, peer, peer_clock, peer_loss and bytes; nil if no peer had anything.
function Gossip:fetch_wait(loss)
  local fetched = capi.mv_gossip_fetch_wait(self.handle, loss)
  self.fetching = false
  return fetched.got == 1 and fetched or nil
end

--- The next of the arrays that were fetched: averaged into this one, in place, or copied into it.
function Gossip:average(array) capi.mv_gossip_average(self.handle, memory(array)) end
function Gossip:read(array) capi.mv_gossip_read(self.handle, memory(array)) end

--- The two calls around a step of training. A fetch that is under way still goes on.
function Gossip:update_send(arrays, loss)
  self:publish(arrays, loss)
  return self.fetching or self:fetch_start()
end

--- The factor of the peer's share, 0 where nobody was there.
function Gossip:update_wait(arrays, loss)
  local fetched = self:fetch_wait(loss)
  if not fetched then return 0 end
  for _, array in ipairs(arrays) do self:average(array) end
  return fetched.factor
end

--- A table with clock, loss, last factor, disagreement, address and the rest, and with `peers`, a table for each, with its score; tostring() says the
-- same in words.
function Gossip:state() return json.decode(capi.mv_gossip_state_text(self.handle, capi.MV_JSON)) end
function Gossip:peers() return self:state().peers end
function Gossip:__tostring() return capi.mv_gossip_state_text(self.handle, 0) end
--- The same in Prometheus's text format.
function Gossip:metrics() return capi.mv_gossip_metrics_text(self.handle) end

function Gossip:add_peer(name, host, port) capi.mv_gossip_add_peer(self.handle, name, host, port) end
function Gossip:remove_peer(name) capi.mv_gossip_remove_peer(self.handle, name) end
--- The node's clock: to go on from a checkpoint.
function Gossip:set_clock(clock) capi.mv_gossip_set_clock(self.handle, clock) end
function Gossip:close()
  self.guard.open = false
  capi.mv_gossip_close(self.handle)
end

--- Closes the node when nobody has it any more, and it was not closed. Tables have no finalizers before Lua 5.2, proxies have.
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

--- How all nodes of a configuration's file stand: as text, or with `json` for programs.
local function status(config, json) return capi.mv_gossip_status_text(config, json and capi.MV_JSON or 0) end

return {open = open(capi.mv_gossip_open), open_text = open(capi.mv_gossip_open_text), status = status}
