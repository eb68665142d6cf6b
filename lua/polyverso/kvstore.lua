--- Key-value stores in MXNet's style: all workers push tensors to keys, the store merges them and updates its values,
-- and workers pull these.
--
--     local kvstore = require("polyverso.kvstore")
--     local kv = kvstore.create("local")
--     kv:init(3, tensor.ones{2, 3})
--     kv:push(3, {gradient_of_one_device, gradient_of_another})     -- are summed
--     kv:pull(3, weights)
--
-- The keys of a store are all integers or all names. Each key takes a value, or a list of values, one for each device:
-- a push sums them, and a pull fills all of them. A list of keys takes a list with such an element for each key. Values
-- are polyverso.tensor's tensors, Torch's (or its stand-in's) tensors, and FFI memory, as
-- {pointer = p, count = n, shape = {2, 3}}. They are used in place; only a Torch tensor that is not contiguous is
-- copied. Calls on one key take effect in their order, and a push takes a snapshot of its values.
-- `how` is nil or a table:
--   timeout = seconds     instead of the node's default
--   priority = integer    order in which waiting requests are sent, higher ones first
--   async = true          pulls only: returns a request at once; do not use the values until it has finished
--   sparse_too = true     pull() only: also fills row-sparse tensors

local arrays = require("polyverso.arrays")
local capi = require("polyverso.capi")
local failures = require("polyverso.failures")
local foreign = require("polyverso.foreign")
local objects = require("polyverso.objects")
local Request = require("polyverso.request")
local tensor = require("polyverso.tensor")
local values = require("polyverso.values")

---@class polyverso.KVStore
---@field handle integer the kv_store for the C functions
local KVStore = {}
KVStore.__index = KVStore

local copy_back, is_memory, tensor_of = arrays.copy_back, arrays.is_memory, arrays.tensor_of

local function refuse(status, ...) capi.raise(status, select("#", ...) > 1 and string.format(...) or ...) end

local function tensors_of_key(value, copies)
  local one = tensor_of(value, copies)
  if one then return {one} end
  if type(value) ~= "table" then
    refuse(capi.MV_EINVAL, "a value must be a tensor or FFI memory, not %s", value == nil and "nil" or "a " .. type(value))
  end
  local some = {}
  for i, item in ipairs(value) do
    some[i] = tensor_of(item, copies)
    if not some[i] then
      refuse(capi.MV_EINVAL, "element %d of a key's values is a %s, not a tensor; polyverso.tensor's copy_of{1, 2} makes one", i, type(item))
    end
  end
  return some
end

-- The tensors of a call, as one list for each key. With a list of keys, `given` has one element for each key.
local function tensors(keys, given, copies)
  if type(keys) ~= "table" then return {tensors_of_key(given, copies)} end
  local is_list = type(given) == "table" and not tensor.is_tensor(given) and not is_memory(given) and not foreign.is_tensor(given)
  if not is_list or #given ~= #keys then
    local some = is_list and #given .. " values" or "one value"
    refuse(capi.MV_ESHAPE, "%s for %d keys: a list with one element per key is needed", some, #keys)
  end
  local all = {}
  for i, value in ipairs(given) do all[i] = tensors_of_key(value, copies) end
  return all
end

local KNOWN = values.set_of("async, priority, sparse_too, timeout", "'")

local function options(how)
  how = values.checked(how, KNOWN)
  return values.call_options((how.async and capi.MV_ASYNC or 0) + (how.sparse_too and capi.KV_SPARSE_TOO or 0), how.timeout)
end

-- The tensors, with the priority in `how`.
local function with_priority(how, given)
  return how and how.priority and {tensors = given, priority = how.priority} or given
end

--- Initializes keys. Dist types: every worker makes the same call. Worker 0's values count, and are stored when the
--- call returns.
---@param key polyverso.Keys
---@param value polyverso.Array|polyverso.Array[] one for each key
function KVStore:init(key, value)
  capi.kv_init(self.handle, key, tensors(key, value))
  local keys = type(key) == "table" and key or {key}
  self.has_names = type(keys[1]) == "string"
  for _, one in ipairs(keys) do self.keys[#self.keys + 1] = one end
  self:set_factors(keys)
end

--- Pushes values through the keys' optimizer; without an optimizer they replace the stored ones. A dist_sync store
--- first merges all workers' pushes of the same number.
---@param key polyverso.Keys
---@param value polyverso.Array|polyverso.Array[] for each key one, or one for each device
---@param how? polyverso.StoreOptions
function KVStore:push(key, value, how)
  self:follow()
  capi.kv_push(self.handle, key, with_priority(how, tensors(key, value)), options(how))
  self:update()
end

-- Repeats the call while it reports that pushes wait for this store's updater.
local function updated(self, call, ...)
  while true do
    local ended, result = pcall(call, self.handle, ...)
    if ended then return result end
    if not self.updater or type(result) ~= "table" or result.code ~= capi.MV_EPENDING then capi.raise_again(result) end
    self:update()
  end
end

--- Pulls values into `out`. They include this worker's earlier pushes; in a dist_sync store, their whole rounds.
---@param key polyverso.Keys
---@param out polyverso.Array|polyverso.Array[] for each key one, or one for each device
---@param how? polyverso.StoreOptions
---@return polyverso.Request? request  with async
function KVStore:pull(key, out, how)
  if out == nil then refuse(capi.MV_EINVAL, "store:pull: nothing to pull into: write store:pull(key, tensor)") end
  local copies = {}
  local request = updated(self, capi.kv_pull, key, with_priority(how, tensors(key, out, copies)), options(how))
  if request then return Request.new(request, function() copy_back(copies) end, "store:pull") end
  copy_back(copies)
end

-- Row ids as a tensor; a table of integers is copied into one.
local function ids_of(value)
  local made = tensor_of(value)
  if not made and type(value) ~= "table" then
    refuse(capi.MV_EINVAL, "row ids must be a tensor or a table of integers, not a %s", type(value))
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

--- Pulls some rows of row-sparse keys into row-sparse tensors, which then hold exactly these rows.
---@param key polyverso.Keys
---@param out polyverso.Tensor|polyverso.Tensor[] row-sparse
---@param row_ids polyverso.Tensor|integer[]|table in any order, repeats allowed. For one key: one for all outputs, or a
--- list with one for each output. For several keys: a list with one of these forms for each key, or one for all
---@param how? polyverso.StoreOptions
---@return polyverso.Request? request  with async
function KVStore:row_sparse_pull(key, out, row_ids, how)
  local ids = {}
  if type(key) ~= "table" then
    ids[1] = row_ids_of_key(row_ids)
  else
    local is_list = type(row_ids) == "table" and not tensor_of(row_ids) and type(row_ids[1]) ~= "number" and #row_ids == #key
    for i = 1, #key do ids[i] = row_ids_of_key(is_list and row_ids[i] or row_ids) end
  end
  local request = updated(self, capi.kv_row_sparse_pull, key, with_priority(how, tensors(key, out)), ids, options(how))
  return request and Request.new(request, nil, "store:row_sparse_pull")
end

--- push(), then pull() into `out`, or into `value` if `out` is nil.
---@param key polyverso.Keys
---@param value polyverso.Array|polyverso.Array[]
---@param out? polyverso.Array|polyverso.Array[]
---@param how? polyverso.StoreOptions
function KVStore:pushpull(key, value, out, how)
  self:push(key, value, how)
  self:pull(key, out or value, how)
end

--- init(), then pull().
---@param key polyverso.Keys
---@param value polyverso.Array|polyverso.Array[]
---@param out polyverso.Array|polyverso.Array[]
function KVStore:broadcast(key, value, out)
  self:init(key, value)
  self:pull(key, out)
end

-- The text of an optimizer with parameters, {learning_rate = 0.5}; the library checks their names.
local function with_parameters(name, parameters)
  if parameters == nil then
    if type(name) == "string" or type(name) == "table" and name.all_factors then return name end
    refuse(capi.MV_EINVAL, "an optimizer of polyverso.optimizer is needed, or a text such as \"mx.sgd learning_rate=0.5\", not a %s", type(name))
  end
  if type(name) ~= "string" or type(parameters) ~= "table" then
    refuse(capi.MV_EINVAL, "parameters are for an optimizer's name: set_optimizer(\"mx.sgd\", {learning_rate = 0.5})")
  end
  return values.settings_text(name, parameters)
end

--- Sets the optimizer of all keys, existing and future: one of polyverso.optimizer's, or its text, "mx.adam
--- learning_rate=0.001", or its name and a table of parameters, "mx.adam", {learning_rate = 0.001}. One worker calls it,
--- before the pushes to which it should apply; setting an equal one again changes nothing. A store of this process
--- follows the object: a changed rate, parameter or factor takes effect with the next push, and the optimizer's states are kept.
---@param optimizer polyverso.Optimizer|string
---@param parameters? table<string, number|string|boolean> of an optimizer that is given by its name
function KVStore:set_optimizer(optimizer, parameters)
  optimizer = with_parameters(optimizer, parameters)
  local before = self.optimizer
  self.optimizer = type(optimizer) == "table" and optimizer or nil
  local ended, failure = pcall(function()
    self:set_factors(self.keys, true) -- first resets factors, which the new optimizer may not support
    capi.kv_set_optimizer(self.handle, tostring(optimizer))
  end)
  if not ended then
    self.optimizer = before
    self:set_factors(self.keys)
    capi.raise_again(failure)
  end
  self.updater = nil
  self:set_factors(self.keys)
  self.told, self.told_factors = tostring(optimizer), self.optimizer and self.optimizer:all_factors()
end

--- Applies the changes made in the optimizer object since the last call. Internal.
function KVStore:follow()
  if not self.optimizer or self.is_dist then return end
  local text, factors = tostring(self.optimizer), self.optimizer:all_factors()
  if text ~= self.told then capi.kv_set_optimizer(self.handle, text) end
  if factors ~= self.told_factors then self:set_factors(self.keys) end
  self.told, self.told_factors = text, factors
end

--- Sends the optimizer's factors for single keys to the servers, and resets those of an earlier one. Internal.
---@param keys (integer|string)[]
---@param only_back? boolean only reset
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

--- Sets multipliers of single keys for MXNet's optimizers, "lr_mult=0.1 wd_mult=0"; "" removes them. An optimizer's
--- set_lr_mult(), set_wd_mult() and param_idx2name do this automatically.
---@param key polyverso.Keys
---@param parameters string
function KVStore:set_key_parameters(key, parameters) capi.kv_set_key_parameters(self.handle, key, parameters) end

--- Sets the function that pushes to a store of this process call instead of replacing the value: updater(key, merged,
--- stored) changes `stored` in place, or returns a tensor of its shape, which becomes the value. A push returns after
--- its updater has run. An error in the updater becomes the push's error, and the value stays as it was. The tensors are
--- valid only until the updater returns; it must copy values that it keeps. It must not yield.
---@param updater? fun(key: integer|string, merged: polyverso.Tensor, stored: polyverso.Tensor): polyverso.Array? nil: removes
--- the updater. An error for dist types, whose values are updated on the servers
function KVStore:set_updater(updater)
  values.check_callable("store:set_updater", "the updater", updater, true)
  capi.kv_set_updater(self.handle, updater ~= nil)
  self.updater = updater
  if updater then self.optimizer = nil end
end

-- Runs the updater on one update, and assigns a tensor that it returns.
local function run_updater(self, name, merged, stored)
  local made = self.updater(name, merged, stored)
  if made == nil or rawequal(made, stored) then return end
  local value = tensor_of(made)
  if not value then
    refuse(capi.MV_EINVAL, 'key "%s": the updater must return nothing or a tensor, not a %s', tostring(name), type(made))
  end
  local given, needed = table.concat(value:shape(), ", "), table.concat(stored:shape(), ", ")
  if given ~= needed then
    refuse(capi.MV_ESHAPE, 'key "%s" holds shape (%s), the updater returned (%s)', tostring(name), needed, given)
  end
  stored:assign(value)
end

--- Processes all queued updates, then raises the first error among them.
function KVStore:update()
  if not self.updater or self.is_updating then return end
  local failed, failure
  local merged, stored, key = capi.kv_next_update(self.handle)
  while merged ~= 0 do
    local name = self.has_names and key or tonumber(key)
    self.is_updating = {tensor.adopt(merged), tensor.adopt(stored)} -- alive until the store has taken the value back
    local what = ('key "%s": the updater'):format(tostring(name))
    local ended, raised = failures.run(what, run_updater, self, name, self.is_updating[1], self.is_updating[2])
    capi.kv_update_done(self.handle, ended and capi.MV_OK or failures.report(raised))
    self.is_updating = nil
    if not ended and not failed then failed, failure = true, raised end
    merged, stored, key = capi.kv_next_update(self.handle)
  end
  if failed then capi.raise_again(failure) end
end

--- Makes keys that are initialized from now on refuse NaN and infinity, unless `on` is false. Dist types: all workers
--- make the same call.
---@param on? boolean default true
function KVStore:set_reject_nonfinite(on) capi.kv_set_reject_nonfinite(self.handle, on == false and 0 or 1) end

--- Compresses later pushes: "2bit threshold=0.5", or {type = "2bit", threshold = 0.5}, or "2bit", {threshold = 0.5}.
--- The worker keeps the residual and adds it to the next push. docs/kvstore.md lists the codecs.
---@param codec string|table
---@param parameters? table<string, number|string>
function KVStore:set_gradient_compression(codec, parameters)
  if type(codec) == "table" then
    local others = {}
    for name, value in pairs(codec) do
      if name ~= "type" then others[name] = value end
    end
    if type(codec.type) ~= "string" then
      local example = values.settings_words(others):gsub("=", " = "):gsub(" ([%w_]+ = )", ", %1")
      refuse(capi.MV_EINVAL, 'the codec has no type: write {type = "2bit", %s}', example == "" and "threshold = 0.5" or example)
    end
    codec, parameters = codec.type, others
  end
  if type(codec) ~= "string" then
    refuse(capi.MV_EINVAL, 'a codec is needed, such as {type = "2bit", threshold = 0.5}, not a %s', type(codec))
  end
  codec = parameters and values.settings_text(codec, parameters) or codec
  capi.kv_set_gradient_compression(self.handle, codec)
end

--- Saves the optimizer's states of each key, from all servers, into one file of this process; with `dump_optimizer`
--- also the optimizer and its update counts. One worker calls it, between two barriers.
---@param path string
---@param dump_optimizer? boolean
function KVStore:save_optimizer_states(path, dump_optimizer)
  capi.kv_save_optimizer_states(self.handle, path, dump_optimizer and capi.KV_DUMP_OPTIMIZER or 0)
end

--- Loads a file of save_optimizer_states(). If it does not fit, nothing is changed.
---@param path string
function KVStore:load_optimizer_states(path) capi.kv_load_optimizer_states(self.handle, path) end

-- Controllers, by node: each executes the commands for its node's server. And milliseconds between polls of a request.
local controllers, MEANWHILE = {}, 5

-- Executes the queued commands; if there are none, waits for one for up to timeout_ms. False once all workers have
-- finished.
local function run_commands(node, timeout_ms)
  local found, head, body = capi.kv_next_command(node, timeout_ms)
  while found == capi.KV_COMMAND_HERE do
    local ended, raised = failures.run(("command %d: the controller"):format(head), controllers[node], head, body)
    capi.kv_command_done(node, ended and capi.MV_OK or failures.report(raised))
    found, head, body = capi.kv_next_command(node, 0)
  end
  return found ~= capi.KV_COMMAND_NEVER
end

--- Sends a command of the program's own to all servers, and returns when each server's controller
--- (kvstore.set_controller()) has executed it. If this process executes commands itself, it does so meanwhile.
---@param head integer
---@param body string
---@param how? polyverso.TimeoutOptions
function KVStore:send_command(head, body, how)
  if not controllers[self.node] then return capi.kv_send_command(self.handle, head, body, options(how)) end
  local asynchronous = {async = true, timeout = how and how.timeout}
  local request = capi.kv_send_command(self.handle, head, body, options(asynchronous))
  while capi.mv_request_test(request) == 0 do run_commands(self.node, MEANWHILE) end
end

--- The type as given to create(), in lower case.
---@return string
function KVStore:type() return capi.kv_type(self.handle) end

--- This worker's number, 0 .. num_workers() - 1.
---@return integer
function KVStore:rank() return capi.kv_rank(self.handle) end

--- The number of workers.
---@return integer
function KVStore:num_workers() return capi.kv_num_workers(self.handle) end

--- Returns when all workers have called it. Does not wait for pushes, because their rounds may be incomplete.
---@param how? polyverso.TimeoutOptions
function KVStore:barrier(how) capi.kv_barrier(self.handle, options(how)) end

--- This worker stops pushing: rounds continue without it.
function KVStore:leave() capi.kv_leave(self.handle) end

--- Closes the store. The values of a dist type stay on the servers. A second free() does nothing.
function KVStore:free()
  if objects.end_of(self) then return end
  capi.kv_free(self.handle)
  self.ended = "after free()"
end

--- Makes the garbage collector close the store. Internal.
---@return polyverso.KVStore
function KVStore:own()
  local handle = self.handle
  self.owner = values.owner(function() pcall(capi.kv_free, handle) end)
  return self
end

--- How messages name the store.
---@return string
function KVStore:described() return ("the %s store"):format(self.name) end

--- <polyverso.KVStore local>; with a cluster, <polyverso.KVStore dist_sync, worker 0 of 2>
function KVStore:__tostring() return objects.text(self, "KVStore", self.name, self.place) end

objects.finish("store", KVStore, {free = true})

-- A store in a process that is only a server: it has a type, a rank and a number of workers. All else is an error.
local StoreOfServer = {}
local of_server = {}

function StoreOfServer.__index(_, name)
  if of_server[name] then return of_server[name] end
  refuse(capi.MV_ESTATE, "this process is only a server: call polyverso.kvstore_server's KVStoreServer(kv):run()")
end
function StoreOfServer:__tostring() return ("<polyverso.KVStore %s, on a server>"):format(self.name) end
--- The type as given to create(), in lower case.
---@return string
function of_server:type() return self.name end
--- This server's number.
---@return integer
function of_server:rank() return capi.mv_server_id(self.node) end
--- The number of workers.
---@return integer
function of_server:num_workers() return capi.mv_num_workers(self.node) end

local module = {}

local function handle_of(node) return values.node_handle("kvstore.create", node) end

--- Creates a store of one of MXNet's types, case-insensitive: local, local_update_cpu, local_allreduce_cpu,
--- local_allreduce_device, device, nccl, row_sparse in this process alone; dist_sync (dist, dist_sync_device,
--- dist_device_sync) and dist_async (dist_async_device) after a polyverso.init(). All workers create their stores in the
--- same order.
--- In a process that is only a server, a store of a dist type only describes itself; polyverso.kvstore_server runs it.
---@param type? string default "local"
---@param node? polyverso.Node the node of the store's cluster; nil = that of polyverso.init()
---@return polyverso.KVStore
function module.create(type, node)
  local number = handle_of(node)
  local created, handle = pcall(capi.kv_create, number, type or "local")
  if not created then
    local known, worker = pcall(capi.mv_worker_id, number)
    if not known or worker >= 0 or handle.code ~= capi.MV_ESTATE then capi.raise_again(handle) end
    return setmetatable({name = type:lower(), node = number}, StoreOfServer)
  end
  local name = capi.kv_type(handle)
  local is_dist = name:find("^dist") or name:find("^p3")
  local made = setmetatable({handle = handle, name = name, node = number, is_dist = is_dist, keys = {}, factors = {}}, KVStore)
  if is_dist then
    made.life, made.place = objects.life_of(number), ("worker %d of %d"):format(capi.kv_rank(handle), capi.kv_num_workers(handle))
  end
  return made:own()
end

--- Sets this server's controller for the commands of store:send_command(): controller(head, body). It runs inside
--- run_commands(), run_server() and send_command(). An error in it becomes the sender's error.
---@param controller? fun(head: integer, body: string) nil for none
---@param node? polyverso.Node
function module.set_controller(controller, node)
  values.check_callable("kvstore.set_controller", "the controller", controller, true)
  local handle = handle_of(node)
  capi.kv_set_controller(handle, controller ~= nil)
  controllers[handle] = controller
end

--- Executes the queued commands; if there are none, waits for one for up to `timeout` seconds. False once all workers
--- have finished.
---@param timeout? number seconds; default 0
---@param node? polyverso.Node
---@return boolean
function module.run_commands(timeout, node)
  return run_commands(handle_of(node), timeout and timeout ~= 0 and values.milliseconds(timeout) or 0)
end

--- Executes commands in a process that is only a server, until all workers have finished.
---@param controller? fun(head: integer, body: string)
---@param node? polyverso.Node
function module.run_server(controller, node)
  module.set_controller(controller, node)
  repeat until not module.run_commands(-1, node)
end

-- Must be last: does not return in a process that a DMLC tracker has started as a server or the scheduler.
require("polyverso.kvstore_server").init(module)

return module
