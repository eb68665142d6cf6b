--- A node: this process as a member of a cluster; made by polyverso.init().

local capi = require("polyverso.capi")
local data = require("polyverso.data")
local failures = require("polyverso.failures")
local foreign = require("polyverso.foreign")
local names = require("polyverso.names")
local objects = require("polyverso.objects")
local Request = require("polyverso.request")
local Table = require("polyverso.table")
local tensor = require("polyverso.tensor")
local values = require("polyverso.values")

local WAITS, SAVES, FORMATS = values.set_of("timeout, async"), values.set_of("keep, timeout, async"), values.set_of("json")

--- This process as a member of a cluster.
---@class polyverso.Node
---@field handle integer the mv_node for the C functions
---@field rank fun(self: polyverso.Node): integer this process's number in the cluster
---@field size fun(self: polyverso.Node): integer the number of processes
---@field worker_id fun(self: polyverso.Node): integer from 0; -1 in a process that is only a server
---@field num_workers fun(self: polyverso.Node): integer
---@field active_workers fun(self: polyverso.Node): integer those that are there now; num_workers: when this process joined
---@field server_id fun(self: polyverso.Node): integer from 0; -1 in a process that is only a worker
---@field num_servers fun(self: polyverso.Node): integer
---@field event_fd fun(self: polyverso.Node): integer a descriptor that is readable while finished requests wait for poll()
local Node = {}
Node.__index = Node

local callbacks = {} -- by node: see on_membership()
local function hand_out(self)
  for event in function() return self:next_event() end do callbacks[self.handle](event) end
end

--- For polyverso.init() and open_node(): the object for a handle of the C API.
---@param handle integer an mv_node
---@return polyverso.Node
function Node.new(handle)
  local life = objects.life_of(handle)
  life.worker, life.workers, life.is_sync = capi.mv_worker_id(handle), capi.mv_num_workers(handle), capi.mv_is_sync(handle) == 1
  life.server, life.servers = capi.mv_server_id(handle), capi.mv_num_servers(handle)
  return setmetatable({handle = handle, life = life}, Node)
end

-- node:rank(), node:worker_id() and so on: see polyverso.h.
for _, name in ipairs{"rank", "size", "worker_id", "num_workers", "active_workers", "server_id", "num_servers", "event_fd"} do
  local of_node = capi["mv_" .. name]
  Node[name] = function(self) return of_node(self.handle) end
end

--- Whether this is worker 0.
---@return boolean
function Node:is_master() return capi.mv_is_master(self.handle) == 1 end

--- Whether tables without a staleness of their own are in sync mode.
---@return boolean
function Node:is_sync() return capi.mv_is_sync(self.handle) == 1 end

--- Waits until this worker's adds are applied and every worker has called it.
---@param how? polyverso.CallOptions
---@return polyverso.Request? request  with async
function Node:barrier(how)
  how = values.checked(how, WAITS)
  local request = capi.mv_barrier(self.handle, values.call_options(how.async and capi.MV_ASYNC or 0, how.timeout))
  return request and Request.new(request, nil, "node:barrier")
end

--- Handles of at most `capacity` requests that have finished since the last poll; waits up to `timeout` seconds for
--- one.
---@param capacity? integer default 64
---@param timeout? number seconds; default 0
---@return integer[] handles of requests
function Node:poll(capacity, timeout)
  local finished = capi.mv_poll(self.handle, capacity or 64, timeout and timeout ~= 0 and values.milliseconds(timeout) or 0)
  if callbacks[self.handle] then hand_out(self) end
  return finished
end

local EVENT_KINDS = {[0] = "joined", "left", "lost", "draining", "drained", "took_over"}
local EVENT_ROLES = {[0] = "scheduler", "worker", "server", "all"}

--- The oldest change of the cluster's membership that was not returned yet, or nil. kind: "joined", "left", "lost", "draining",
--- "drained" or "took_over"; rank, role: the member's; part: the rank whose tables a server has taken over; epoch: of the
--- list of members; reason: a sentence; dropped: older events that were dropped, because more than 256 waited.
---@param timeout? number seconds to wait for one; default 0
---@return table? event
function Node:next_event(timeout)
  local ok, event = pcall(capi.mv_membership_next, self.handle, timeout and timeout ~= 0 and values.milliseconds(timeout) or 0)
  if not ok then
    if type(event) == "table" and event.code == capi.MV_ETIMEOUT then return nil end
    capi.raise_again(event)
  end
  event.kind, event.role = EVENT_KINDS[event.kind], EVENT_ROLES[event.role]
  if event.part < 0 then event.part = nil end
  return event
end

--- Calls `callback` with each of these events, inside poll(). nil: no longer.
---@param callback? fun(event: table)
function Node:on_membership(callback)
  values.check_callable("node:on_membership", "the callback", callback, true)
  callbacks[self.handle] = callback
  if callback then hand_out(self) end
end

local KINDS = {array = capi.MV_ARRAY, matrix = capi.MV_MATRIX, sparse = capi.MV_SPARSE, keyvalue = capi.MV_KEYVALUE}
local EXAMPLES = {array = "{size = 10}", matrix = "{rows = 10, cols = 64}", sparse = "{rows = 10, cols = 64}", keyvalue = "{cols = 64}"}

local function create(self, kind, spec)
  if type(spec) ~= "table" or tensor.is_tensor(spec) or foreign.is_tensor(spec) then
    local given = (tensor.is_tensor(spec) or foreign.is_tensor(spec)) and "a tensor" or spec == nil and "nothing" or "a " .. type(spec)
    capi.raise(capi.MV_EINVAL, ("node:%s() takes a table such as %s, not %s"):format(kind, EXAMPLES[kind], given))
  end
  if spec.rows == nil and spec.size == nil and kind ~= "keyvalue" then
    local missing = kind == "array" and "size" or "rows"
    capi.raise(capi.MV_EINVAL, ("node:%s: %s is missing: write node:%s%s"):format(kind, missing, kind, EXAMPLES[kind]))
  end
  local passed = {kind = KINDS[kind], dtype = values.dtype(spec.dtype)}
  for key, value in pairs(spec) do
    if key ~= "init" and key ~= "dtype" then passed[key] = key == "updater" and tostring(value) or key == "device" and values.place(value) or value end
  end
  local updater, class = spec.updater, type(spec.updater) == "table" and getmetatable(spec.updater)
  if updater ~= nil and type(updater) ~= "string" and not (class and class.__tostring) then
    local message = 'node:%s: updater is a text such as "sgd rate=0.1", or an optimizer of polyverso.optimizer, not a %s'
    capi.raise(capi.MV_EINVAL, message:format(kind, type(updater)))
  end
  local needed = {rows = tonumber(spec.rows or spec.size), cols = tonumber(spec.cols) or 1, is_flat = kind == "array", dtype = passed.dtype}
  local named = spec.name and ('init of table "%s"'):format(spec.name) or "init"
  local init = spec.init ~= nil and data.given(spec.init, needed, named) or nil
  names.called("mv_table_create", "node:" .. kind)
  return Table.new(capi.mv_table_create(self.handle, passed, values.with_dtype(init, passed.dtype, init ~= spec.init)), self.life)
end

--- Creates an array. Collective: every worker makes the same call.
---@param spec polyverso.ArraySpec {size = n, ...}
---@return polyverso.Table
function Node:array(spec) return create(self, "array", spec) end

--- Creates a matrix.
---@param spec polyverso.MatrixSpec {rows = r, cols = c, ...}
---@return polyverso.Table
function Node:matrix(spec) return create(self, "matrix", spec) end

--- Creates a matrix that stores and sends only the rows that were ever changed.
---@param spec polyverso.SparseSpec {rows = r, cols = c, ...}
---@return polyverso.Table
function Node:sparse(spec) return create(self, "sparse", spec) end

--- Creates a table of `cols` numbers (default 1) for each 64-bit integer key; stores only keys that were changed.
---@param spec? polyverso.KeyValueSpec {cols = c, ...}
---@return polyverso.Table
function Node:keyvalue(spec) return create(self, "keyvalue", spec or {}) end

--- Opens a table that exists already.
---@param name string
---@return polyverso.Table
function Node:open(name) return Table.new(capi.mv_table_open(self.handle, name), self.life) end

--- Like polyverso.doctor(), for this node: the transport to each peer, why it is not a better one, its latency.
---@return string json
function Node:doctor() return capi.mv_doctor_text(self.handle, capi.MV_JSON) end

--- The cluster's tables as JSON text.
---@return string json
function Node:tables() return capi.mv_table_list(self.handle) end

--- The state of the cluster: its members, and which of them wait for which. As text, or with {json = true} as JSON
--- text, whose fields docs/operations.md describes. Takes at most four seconds, even if other members do not answer.
---@param how? {json: boolean}
---@return string
function Node:status(how)
  return capi.mv_status_text(self.handle, values.checked(how, FORMATS).json and capi.MV_JSON or 0)
end

--- Shows a number of this program, as in node:report("loss", loss), in the cluster's status and in metrics(): the
--- latest of each name. At most 64 names. Sends nothing, and never waits.
---@param name string 1 to 255 bytes
---@param value number
function Node:report(name, value) capi.mv_report(self.handle, name, value) end

--- The counters of this process, in Prometheus's text format.
---@return string
function Node:metrics() return capi.mv_metrics_text(self.handle) end

--- The last messages, calls and waits of this node, as JSON in Chrome's trace event format.
---@return string json
function Node:trace() return capi.mv_trace_text(self.handle) end

--- Saves all tables, with their updaters' states and clocks, as "checkpoint-<number>" in a directory that all servers
--- see under this path, and which is created, with its parents, if it does not exist. Collective: every worker calls it.
--- The checkpoint contains each worker's changes before its call, and none after it. Returns when the checkpoint is on
--- disk; with async, when training may continue.
---@param directory string
---@param how? polyverso.SaveOptions
---@return polyverso.Request? request  with async
function Node:save(directory, how)
  how = values.checked(how, SAVES)
  local options = values.call_options(how.async and capi.MV_ASYNC or 0, how.timeout)
  local request = capi.mv_checkpoint_save(self.handle, directory, how.keep or 0, options)
  return request and Request.new(request, nil, "node:save")
end

--- Loads all tables of a checkpoint, or of the newest complete one in a directory, on any number of servers.
--- Collective, between two barriers. Creates tables that do not exist yet; matrix() and its siblings, or open(), then
--- find them with their values. A missing or damaged checkpoint is an error that gives the reason, and nothing is
--- changed.
---@param path string
---@param how? polyverso.CallOptions
---@return polyverso.Request? request  with async
function Node:load(path, how)
  how = values.checked(how, WAITS)
  local options = values.call_options(how.async and capi.MV_ASYNC or 0, how.timeout)
  local request = capi.mv_checkpoint_load(self.handle, path, options)
  return request and Request.new(request, nil, "node:load")
end

--- Leaves the cluster. A process that is also a server continues to serve until every worker has finished.
function Node:shutdown()
  capi.mv_shutdown(self.handle)
  callbacks[self.handle] = nil
  objects.shut(self.handle)
end

--- Hands the tables of this process, which must be a server, over to other servers. Afterwards shutdown() does not
--- wait for the workers. Nothing is lost, and workers' calls only take longer. `polyverso server` does it at SIGTERM.
--- A process that is also a worker finishes as a worker first: it can use no tables, stores or groups any more, and no
--- other worker waits for it. After a time-out the drain continues.
---@param timeout? number seconds; default 30; 0: only begin
function Node:drain(timeout)
  timeout = timeout or 30
  capi.mv_cluster_drain(self.handle, timeout ~= 0 and values.milliseconds(timeout) or 0)
end

--- Changes the number of the cluster's servers, if it was started with room for them (max_servers,
--- `polyverso run --max-servers`). With fewer than now, those with the highest ranks drain and leave; with more,
--- `polyverso run` starts the missing ones. Workers continue meanwhile. After a time-out the change continues.
---@param servers integer 1 to max_servers
---@param timeout? number seconds until the cluster has them; default 60; 0: only wait for the master's answer
function Node:resize(servers, timeout)
  timeout = timeout or 60
  capi.mv_cluster_resize(self.handle, servers, timeout ~= 0 and values.milliseconds(timeout) or 0)
end

--- Leaves the cluster because this program has failed: the calls of the other processes fail, with this reason. Does
--- nothing on a node that has ended.
---@param reason? any an error or a text
function Node:abort(reason)
  if objects.end_of(self) then return end
  capi.mv_abort(self.handle, reason ~= nil and failures.one_line(reason) or nil)
  objects.shut(self.handle, "after abort")
end

--- The end of a block with `local node <close> = polyverso.init()`, in Lua 5.4: shuts down, or aborts after an error.
---@param failure? any
function Node:__close(failure)
  if objects.end_of(self) then return end
  if failure == nil then objects.end_block(self) else self:abort(failure) end
end

--- How messages name the node.
---@return string
function Node:described() return "this node" end

--- <polyverso.Node worker 0 of 2, sync, 3 tables>
function Node:__tostring()
  local life, tables = self.life, 0
  for _ in pairs(life.tables) do tables = tables + 1 end
  local place = life.worker >= 0 and ("worker %d of %d"):format(life.worker, life.workers)
    or ("server %d of %d"):format(life.server, life.servers)
  return objects.text(self, "Node", place, life.is_sync and "sync" or "async", ("%d table%s"):format(tables, tables == 1 and "" or "s"))
end

return objects.finish("node", Node, {abort = true})
