--- Key-value stores in the manner of MXNet's: tensors under keys, pushed by all workers, merged, updated, pulled.
--
--     local kvstore = require("polyverso.kvstore")
--     local kv = kvstore.create("local")
--     kv:init(3, tensor.ones{2, 3})
--     kv:push(3, {gradient_of_one_device, gradient_of_another})     -- summed up
--     kv:pull(3, weights)
--
-- Keys of one store are all integers or all names. A key goes with a value, or with a list of values, one a device, which are
-- summed up when they are pushed and all receive what is pulled; a list of keys goes with a list of these. Values are
-- polyverso.tensor's, Torch's (or the stand-in's) tensors, and FFI memory, {pointer = p, count = n, shape = {2, 3}}; they are
-- used in place, and only a Torch tensor with gaps is copied.
-- What happens to one key happens in the order of the calls, and what was pushed is a snapshot. `how` is nil or a table:
--   timeout = seconds     instead of the node's default
--   priority = integer

local capi = require("polyverso.capi")
local foreign = require("polyverso.foreign")
local tensor = require("polyverso.tensor")
local values = require("polyverso.values")

local KVStore = {}
KVStore.__index = KVStore

local function is_memory(value) return type(value) == "cdata" or type(value) == "table" and value.pointer ~= nil end

-- Of a Torch tensor without gaps.
local function upon(value)
  local shape = {}
  for d = 1, value:dim() do shape[d] = value:size(d) end
  local memory = foreign.memory(value)
  return tensor.is_tensor(memory) and memory:reshape(shape) or tensor.view(memory, shape)
end

-- The tensor of one value, or nil for what may be a list. With `copies`, which are to be copied back, it is written to.
local function tensor_of(value, copies)
  if tensor.is_tensor(value) then return value end
  if is_memory(value) then return tensor.view(value, type(value) == "table" and value.shape or nil) end
  if not foreign.is_tensor(value) then return nil end
  local whole = value:contiguous()
  if copies and whole ~= value then copies[#copies + 1] = {from = whole, to = value} end
  return upon(whole)
end

local function refuse(status, ...) capi.raise(status, select("#", ...) > 1 and string.format(...) or ...) end

local function tensors_of_key(value, copies)
  local one = tensor_of(value, copies)
  if one then return {one} end
  if type(value) ~= "table" then
    refuse(capi.MV_EINVAL, "a value is a tensor or FFI memory, not a %s", value == nil and "nil" or type(value))
  end
  local some = {}
  for i, item in ipairs(value) do
    some[i] = tensor_of(item, copies)
    if not some[i] then refuse(capi.MV_EINVAL, "element %d of a key's values is a %s, no tensor", i, type(item)) end
  end
  return some
end

-- The tensors of a call, a list of each key's: in a list of keys each has one element of the list of values.
local function tensors(keys, given, copies)
  if type(keys) ~= "table" then return {tensors_of_key(given, copies)} end
  local is_list = type(given) == "table" and not tensor.is_tensor(given) and not is_memory(given) and not foreign.is_tensor(given)
  if not is_list or #given ~= #keys then
    local some = is_list and #given .. " values" or "one value"
    refuse(capi.MV_ESHAPE, "%s for %d keys: a list with one element a key is needed", some, #keys)
  end
  local all = {}
  for i, value in ipairs(given) do all[i] = tensors_of_key(value, copies) end
  return all
end

local KNOWN = {timeout = true, priority = true}

local function options(how)
  for name in pairs(how or {}) do
    if not KNOWN[name] then refuse(capi.MV_EINVAL, "unknown option '%s'; known: priority, timeout", tostring(name)) end
  end
  return values.call_options(0, how and how.timeout)
end

--- Brings keys into the store. Of dist types every worker calls it alike; worker 0's values count, and they are stored when it
-- returns.
function KVStore:init(key, value) capi.kv_init(self.handle, key, tensors(key, value)) end

--- Pushes values through the keys' optimizer; without one they replace what is there. In a dist_sync store all workers' pushes
-- of the same number are merged first.
function KVStore:push(key, value, how) capi.kv_push(self.handle, key, tensors(key, value), options(how)) end

--- Pulls into `out`, which holds this worker's earlier pushes then, in a dist_sync store with all that belongs to their rounds.
function KVStore:pull(key, out, how)
  local copies = {}
  capi.kv_pull(self.handle, key, tensors(key, out, copies), options(how))
  for _, copy in ipairs(copies) do copy.to:copy(copy.from) end
end

--- push(), then pull() into `out`, or into `value` without it.
function KVStore:pushpull(key, value, out, how)
  self:push(key, value, how)
  self:pull(key, out or value, how)
end

--- init(), then pull().
function KVStore:broadcast(key, value, out)
  self:init(key, value)
  self:pull(key, out)
end

--- Sets the optimizer of all keys, those of today and those to come: one of polyverso.optimizer's, or its text,
-- "mx.adam learning_rate=0.001". One worker calls it, before the pushes that it is for; an equal one set again changes nothing.
function KVStore:set_optimizer(optimizer) capi.kv_set_optimizer(self.handle, tostring(optimizer)) end

--- The type as it was given, in small letters.
function KVStore:type() return capi.kv_type(self.handle) end

--- Place among the workers, 0 .. num_workers() - 1.
function KVStore:rank() return capi.kv_rank(self.handle) end

function KVStore:num_workers() return capi.kv_num_workers(self.handle) end

--- Returns when all workers have called it. It waits for no pushes: their rounds may be open.
function KVStore:barrier(how) capi.kv_barrier(self.handle, options(how)) end

--- This worker pushes no more: rounds go on without it.
function KVStore:leave() capi.kv_leave(self.handle) end

--- Gives the store back.
function KVStore:free() capi.kv_free(self.handle) end

function KVStore:__tostring() return "polyverso.kvstore " .. self:type() end

local module = {}

--- A store of one of MXNet's types, in letters of any size: local, local_update_cpu, local_allreduce_cpu,
-- local_allreduce_device, device, nccl, row_sparse in this process alone; dist_sync (dist, dist_sync_device, dist_device_sync)
-- and dist_async (dist_async_device) after a polyverso.init(). Workers create theirs in the same order.
-- @param node  whose cluster; nil = that of polyverso.init()
function module.create(type, node)
  return setmetatable({handle = capi.kv_create(node and node.handle or 0, type or "local")}, KVStore)
end

return module
