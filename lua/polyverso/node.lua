--- One process's place in a cluster; from polyverso.init().

local capi = require("polyverso.capi")
local Request = require("polyverso.request")
local Table = require("polyverso.table")
local values = require("polyverso.values")

local Node = {}
Node.__index = Node

function Node.new(handle)
  return setmetatable({handle = handle}, Node)
end

-- node:rank(), node:worker_id() and so on: see polyverso.h.
for _, name in ipairs{"rank", "size", "worker_id", "num_workers", "server_id", "num_servers", "event_fd"} do
  local of_node = capi["mv_" .. name]
  Node[name] = function(self) return of_node(self.handle) end
end

--- Whether this is worker 0.
function Node:is_master() return capi.mv_is_master(self.handle) == 1 end

function Node:is_sync() return capi.mv_is_sync(self.handle) == 1 end

--- Waits until this worker's adds are applied and every worker is here.
-- @param how {timeout = seconds, async = true}, or nil
function Node:barrier(how)
  how = how or {}
  local request = capi.mv_barrier(self.handle, values.call_options(how.async and capi.MV_ASYNC or 0, how.timeout))
  return request and Request.new(request)
end

--- Handles of requests that have finished since; waits up to `timeout` seconds for the first.
function Node:poll(capacity, timeout)
  return capi.mv_poll(self.handle, capacity or 64, timeout and timeout ~= 0 and values.milliseconds(timeout) or 0)
end

local function create(self, kind, spec)
  local passed = {kind = kind, dtype = values.dtype(spec.dtype)}
  for key, value in pairs(spec) do
    if key ~= "init" and key ~= "dtype" then passed[key] = value end
  end
  return Table.new(capi.mv_table_create(self.handle, passed, values.with_dtype(spec.init, passed.dtype)))
end

--- Creates an array. Collective: every worker makes the same call.
-- @param spec {size = n, ...} and, all optional:
--   dtype = "f32", "f64", "i64", "i32", "u8", "i8", "f16" or "bf16"
--   name = the table's identity, for open()
--   init = initial values, of which worker 0's count
--   reject_nonfinite = true: refuse NaN and infinity
--   updater = what an add does on the servers, "adagrad rate=0.1"; mv_table_set_updater() in polyverso.h has the list
--   staleness = how many clocks (t:clock()) a worker may be ahead of another in its gets; 0: sync mode for this table
function Node:array(spec) return create(self, capi.MV_ARRAY, spec) end

--- Creates a matrix.
-- @param spec {rows = r, cols = c, ...}, otherwise as array()
function Node:matrix(spec) return create(self, capi.MV_MATRIX, spec) end

--- Creates a matrix of which only the rows ever changed are stored and sent.
-- @param spec {rows = r, cols = c, ...} as matrix(), without init, but:
--   initial = the value of what was never changed
--   initial_range, seed = that value is random in initial +- initial_range instead, always the same one for the same
--   seed, row and column
function Node:sparse(spec) return create(self, capi.MV_SPARSE, spec) end

--- Creates a table of `cols` numbers (default 1) under each of any 64-bit integers; those never changed are not stored.
-- @param spec {cols = c, ...} as sparse(), and:
--   capacity = keys kept on all servers together; beyond, each server drops those that were least recently used
function Node:keyvalue(spec) return create(self, capi.MV_KEYVALUE, spec or {}) end

--- A table that exists already.
function Node:open(name) return Table.new(capi.mv_table_open(self.handle, name)) end

--- As polyverso.doctor(), of this node: the transport to each peer, why it is not a better one, how fast it answers.
function Node:doctor() return capi.mv_doctor_text(self.handle, capi.MV_JSON) end

--- The cluster's tables as JSON text.
function Node:tables() return capi.mv_table_list(self.handle) end

--- How the cluster stands, who is there and who waits for whom: lines for people, or with {json = true} JSON text, whose
-- fields docs/operations.md has. Takes no longer than four seconds, whatever has become of the others.
function Node:status(how)
  return capi.mv_status_text(self.handle, how and how.json and capi.MV_JSON or 0)
end

--- What this process has counted, in Prometheus's text format.
function Node:metrics() return capi.mv_metrics_text(self.handle) end

--- Its last messages, calls and waits, as JSON in Chrome's trace event format.
function Node:trace() return capi.mv_trace_text(self.handle) end

--- Saves all tables, with their updaters' states and clocks, as "checkpoint-<number>" in a directory that all servers
-- see under this path. Collective: every worker calls it, and the checkpoint holds what each did before its call,
-- nothing from after it. Returns when it is on the disk; with async when training may go on.
-- @param how {keep = how many stay, the newest ones (default all), timeout = seconds, async = true}, or nil
function Node:save(directory, how)
  how = how or {}
  local options = values.call_options(how.async and capi.MV_ASYNC or 0, how.timeout)
  local request = capi.mv_checkpoint_save(self.handle, directory, how.keep or 0, options)
  return request and Request.new(request)
end

--- Loads all tables of a checkpoint, or of the newest whole one in a directory, on any number of servers. Collective,
-- between two barriers. Tables that are not there yet come to be; matrix() and its siblings, or open(), then find them
-- with their values. A missing or damaged one is an error, with the reason, and nothing was changed.
-- @param how {timeout = seconds, async = true}, or nil
function Node:load(path, how)
  how = how or {}
  local options = values.call_options(how.async and capi.MV_ASYNC or 0, how.timeout)
  local request = capi.mv_checkpoint_load(self.handle, path, options)
  return request and Request.new(request)
end

--- Leaves the cluster. A process that is also a server goes on serving until every worker has finished.
function Node:shutdown() capi.mv_shutdown(self.handle) end

return Node
