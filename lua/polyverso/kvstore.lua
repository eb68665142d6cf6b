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
--   priority = integer    what waits to be sent leaves in this order, higher ones first
--   async = true          of pulls: returns a request at once; until it is over the values must not be used
--   sparse_too = true     of pull(): row-sparse tensors are filled too

local arrays = require("polyverso.arrays")
local capi = require("polyverso.capi")
local foreign = require("polyverso.foreign")
local Request = require("polyverso.request")
local tensor = require("polyverso.tensor")
local values = require("polyverso.values")

local KVStore = {}
KVStore.__index = KVStore

local copy_back, is_memory, tensor_of = arrays.copy_back, arrays.is_memory, arrays.tensor_of

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

local KNOWN = {timeout = true, priority = true, async = true, sparse_too = true}

local function options(how)
  how = how or {}
  for name in pairs(how) do
    if not KNOWN[name] then
      refuse(capi.MV_EINVAL, "unknown option '%s'; known: async, priority, sparse_too, timeout", tostring(name))
    end
  end
  return values.call_options((how.async and capi.MV_ASYNC or 0) + (how.sparse_too and capi.KV_SPARSE_TOO or 0), how.timeout)
end

-- The tensors with what `how` says of them.
local function with_priority(how, given)
  return how and how.priority and {tensors = given, priority = how.priority} or given
end

--- Brings keys into the store. Of dist types every worker calls it alike; worker 0's values count, and they are stored when it
-- returns.
function KVStore:init(key, value)
  capi.kv_init(self.handle, key, tensors(key, value))
  local keys = type(key) == "table" and key or {key}
  self.has_names = type(keys[1]) == "string"
  for _, one in ipairs(keys) do self.keys[#self.keys + 1] = one end
  self:set_factors(keys)
end

--- Pushes values through the keys' optimizer; without one they replace what is there. In a dist_sync store all workers' pushes
-- of the same number are merged first.
function KVStore:push(key, value, how)
  self:follow()
  capi.kv_push(self.handle, key, with_priority(how, tensors(key, value)), options(how))
  self:update()
end

-- The call, again as long as it says that pushes wait for this store's updater.
local function updated(self, call, ...)
  while true do
    local ended, result = pcall(call, self.handle, ...)
    if ended then return result end
    if not self.updater or type(result) ~= "table" or result.code ~= capi.MV_EPENDING then error(result, 0) end
    self:update()
  end
end

--- Pulls into `out`, which holds this worker's earlier pushes then, in a dist_sync store with all that belongs to their rounds.
function KVStore:pull(key, out, how)
  local copies = {}
  local request = updated(self, capi.kv_pull, key, with_priority(how, tensors(key, out, copies)), options(how))
  if request then return Request.new(request, function() copy_back(copies) end) end
  copy_back(copies)
end

-- A tensor of row ids, of a table of integers too.
local function ids_of(value)
  local made = tensor_of(value)
  if not made and type(value) ~= "table" then
    refuse(capi.MV_EINVAL, "row ids are a tensor or a table of integers, not a %s", type(value))
  end
  return made or tensor.copy_of(value, "i64")
end

local function row_ids_of_key(value)
  local is_list = type(value) == "table" and not tensor_of(value) and value[1] ~= nil and type(value[1]) ~= "number"
  if not is_list then return {ids_of(value)} end
  local some = {}
  for i, ids in ipairs(value) do some[i] = ids_of(ids) end
  return some
end

--- Pulls some rows of row-sparse keys into row-sparse tensors, which hold these rows then, and no others.
-- @param row_ids  tensors, or tables of integers, in any order, repeated or not: of one key for all outputs, or a list of as many
-- as there are; of several keys a list of these, or one for all
function KVStore:row_sparse_pull(key, out, row_ids, how)
  local ids = {}
  if type(key) ~= "table" then
    ids[1] = row_ids_of_key(row_ids)
  else
    local is_list = type(row_ids) == "table" and not tensor_of(row_ids) and type(row_ids[1]) ~= "number" and #row_ids == #key
    for i = 1, #key do ids[i] = row_ids_of_key(is_list and row_ids[i] or row_ids) end
  end
  local request = updated(self, capi.kv_row_sparse_pull, key, with_priority(how, tensors(key, out)), ids, options(how))
  return request and Request.new(request)
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
-- A store of this process goes by the object: a rate, a parameter or a factor that is changed in it counts from the next push on,
-- with the states that there are.
function KVStore:set_optimizer(optimizer)
  local before = self.optimizer
  self.optimizer = type(optimizer) == "table" and optimizer or nil
  local ended, failure = pcall(function()
    self:set_factors(self.keys, true) -- first what the new one may not know
    capi.kv_set_optimizer(self.handle, tostring(optimizer))
  end)
  if not ended then
    self.optimizer = before
    self:set_factors(self.keys)
    error(failure, 0)
  end
  self.updater = nil
  self:set_factors(self.keys)
  self.told, self.told_factors = tostring(optimizer), self.optimizer and self.optimizer:all_factors()
end

-- Tells what was changed in the optimizer since it was told last.
function KVStore:follow()
  if not self.optimizer or self.is_dist then return end
  local text, factors = tostring(self.optimizer), self.optimizer:all_factors()
  if text ~= self.told then capi.kv_set_optimizer(self.handle, text) end
  if factors ~= self.told_factors then self:set_factors(self.keys) end
  self.told, self.told_factors = text, factors
end

-- What the optimizer says of single keys goes to the servers, and what an earlier one said is taken back; with `only_back` only that.
function KVStore:set_factors(keys, only_back)
  for _, key in ipairs(keys) do
    local rate, decay = 1, 1
    if self.optimizer then rate, decay = self.optimizer:factors_of(key) end
    local parameters = rate == 1 and decay == 1 and "" or ("lr_mult=%.17g wd_mult=%.17g"):format(rate, decay)
    if parameters ~= (self.factors[key] or "") and (parameters == "" or not only_back) then
      self:set_key_parameters(key, parameters)
      self.factors[key] = parameters
    end
  end
end

--- Multipliers of single keys for MXNet's optimizers, "lr_mult=0.1 wd_mult=0"; "" takes them away. An optimizer's set_lr_mult(),
-- set_wd_mult() and param_idx2name do it by themselves.
function KVStore:set_key_parameters(key, parameters) capi.kv_set_key_parameters(self.handle, key, parameters) end

--- What a push does in a store of this process, instead of replacing the value: updater(key, merged, stored) changes `stored` in
-- place. A push has been through it when it returns. What it raises is the push's error, and the value stays as it was. Its tensors
-- end with it: what it would keep it copies.
-- @param updater  nil: without one again. An error for dist types, whose values are updated on the servers
function KVStore:set_updater(updater)
  capi.kv_set_updater(self.handle, updater ~= nil)
  self.updater = updater
  if updater then self.optimizer = nil end
end

-- The code of what a user's function raised.
local function code_of(failure)
  return type(failure) == "table" and type(failure.code) == "number" and failure.code < 0 and failure.code or capi.MV_EINVAL
end

--- Makes the updates that wait, and raises the first error among them when all are made.
function KVStore:update()
  if not self.updater or self.is_updating then return end
  local failed, failure
  local merged, stored, key = capi.kv_next_update(self.handle)
  while merged ~= 0 do
    local name = self.has_names and key or tonumber(key)
    self.is_updating = {tensor.adopt(merged), tensor.adopt(stored)} -- which live until the store has taken the value back
    local ended, raised = pcall(self.updater, name, self.is_updating[1], self.is_updating[2])
    capi.kv_update_done(self.handle, ended and capi.MV_OK or code_of(raised))
    self.is_updating = nil
    if not ended and not failed then failed, failure = true, raised end
    merged, stored, key = capi.kv_next_update(self.handle)
  end
  if failed then error(failure, 0) end
end

--- Keys that are initialised from now on refuse NaN and infinity, unless `on` is false. Of dist types all workers call it alike.
function KVStore:set_reject_nonfinite(on) capi.kv_set_reject_nonfinite(self.handle, on == false and 0 or 1) end

--- What is pushed from now on travels in fewer bits: "2bit threshold=0.5", or {type = "2bit", threshold = 0.5}. What is left out is
-- kept here and added to the next push. docs/kvstore.md has the codecs.
function KVStore:set_gradient_compression(codec)
  if type(codec) == "table" then
    if type(codec.type) ~= "string" then refuse(capi.MV_EINVAL, 'the codec has no type: {type = "2bit", threshold = 0.5}') end
    local words = {codec.type}
    for name, value in pairs(codec) do
      if name ~= "type" then words[#words + 1] = ("%s=%s"):format(name, value) end
    end
    codec = table.concat(words, " ")
  end
  capi.kv_set_gradient_compression(self.handle, codec)
end

--- Saves what the optimizer keeps for each key, of all servers, into one file of this process, and with `dump_optimizer` the
-- optimizer and its counts too. One worker calls it, between two barriers.
function KVStore:save_optimizer_states(path, dump_optimizer)
  capi.kv_save_optimizer_states(self.handle, path, dump_optimizer and capi.KV_DUMP_OPTIMIZER or 0)
end

--- Loads what save_optimizer_states() has saved. What does not fit changes nothing.
function KVStore:load_optimizer_states(path) capi.kv_load_optimizer_states(self.handle, path) end

-- By node: what executes the commands that its server is sent. And milliseconds between two looks at a request.
local controllers, MEANWHILE = {}, 5

-- Executes the commands that wait, or that come within so many milliseconds; false once all workers have finished.
local function run_commands(node, timeout_ms)
  local found, head, body = capi.kv_next_command(node, timeout_ms)
  while found == capi.KV_COMMAND_HERE do
    local ended, raised = pcall(controllers[node], head, body)
    capi.kv_command_done(node, ended and capi.MV_OK or code_of(raised))
    found, head, body = capi.kv_next_command(node, 0)
  end
  return found ~= capi.KV_COMMAND_NEVER
end

--- Sends a command of the program's own to all servers, and returns when each one's controller has executed it:
-- kvstore.set_controller(). Where this program executes commands itself, it does so meanwhile.
-- @param head  an integer
-- @param body  a string
function KVStore:send_command(head, body, how)
  if not controllers[self.node] then return capi.kv_send_command(self.handle, head, body, options(how)) end
  local asynchronous = {async = true, timeout = how and how.timeout}
  local request = capi.kv_send_command(self.handle, head, body, options(asynchronous))
  while capi.mv_request_test(request) == 0 do run_commands(self.node, MEANWHILE) end
end

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

function KVStore:own()
  local handle = self.handle
  self.owner = values.owner(function() pcall(capi.kv_free, handle) end)
  return self
end

function KVStore:__tostring() return "polyverso.kvstore " .. self:type() end

-- A store in a process that is only a server: its type, rank and number of workers. All else is an error.
local StoreOfServer = {}
local of_server = {}

function StoreOfServer.__index(_, name)
  if of_server[name] then return of_server[name] end
  refuse(capi.MV_ESTATE, "this process is only a server: polyverso.kvstore_server's KVStoreServer(kv):run()")
end
function of_server:type() return self.name end
function of_server:rank() return capi.mv_server_id(self.node) end
function of_server:num_workers() return capi.mv_num_workers(self.node) end

local module = {}

local function handle_of(node) return node and node.handle or 0 end

--- A store of one of MXNet's types, in letters of any size: local, local_update_cpu, local_allreduce_cpu,
-- local_allreduce_device, device, nccl, row_sparse in this process alone; dist_sync (dist, dist_sync_device, dist_device_sync)
-- and dist_async (dist_async_device) after a polyverso.init(). Workers create theirs in the same order.
-- In a process that is only a server one of a dist type knows what it is, and does nothing; polyverso.kvstore_server runs it.
-- @param node  whose cluster; nil = that of polyverso.init()
function module.create(type, node)
  local number = handle_of(node)
  local made, handle = pcall(capi.kv_create, number, type or "local")
  if not made then
    local known, worker = pcall(capi.mv_worker_id, number)
    if not known or worker >= 0 or handle.code ~= capi.MV_ESTATE then error(handle, 0) end
    return setmetatable({name = type:lower(), node = number}, StoreOfServer)
  end
  local is_dist = capi.kv_type(handle):find("^dist") or capi.kv_type(handle):find("^p3")
  return setmetatable({handle = handle, node = number, is_dist = is_dist, keys = {}, factors = {}}, KVStore):own()
end

--- What this process does, as a server, with the commands of store:send_command(): controller(head, body), in run_commands(),
-- run_server() and send_command(). What it raises is the sender's error.
-- @param controller  nil for none
function module.set_controller(controller, node)
  local handle = handle_of(node)
  capi.kv_set_controller(handle, controller ~= nil)
  controllers[handle] = controller
end

--- Executes the commands that wait; without any it waits for one, so many seconds. False once all workers have finished.
function module.run_commands(timeout, node)
  return run_commands(handle_of(node), timeout and timeout ~= 0 and values.milliseconds(timeout) or 0)
end

--- Executes users' commands in a process that is only a server, until all workers have finished.
function module.run_server(controller, node)
  module.set_controller(controller, node)
  repeat until not module.run_commands(-1, node)
end

-- Last, for in a process that a DMLC tracker has made a server or the scheduler it does not return.
require("polyverso.kvstore_server").init(module)

return module
