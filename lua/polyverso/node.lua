--- A node: this process as a member of a cluster; made by polyverso.init().

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

--- Waits until this worker's adds are applied and every worker has called it.
-- @param how {timeout = seconds, async = true}, or nil
function Node:barrier(how)
  how = how or {}
  local request = capi.mv_barrier(self.handle, values.call_options(how.async and capi.MV_ASYNC or 0, how.timeout))
  return request and Request.new(request)
end

--- Handles of at most `capacity` requests that have finished since the last poll; waits up to `timeout` seconds for
-- one.
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
--   init = initial values; those of worker 0 count
--   reject_nonfinite = true: refuse NaN and infinity
--   updater = the formula by which servers apply an add, "adagrad rate=0.1"; mv_table_set_updater() in polyverso.h has
--   the list
--   staleness = the number of clocks (t:clock()) that a worker may be ahead of the slowest one; 0: sync mode for this
--   table
function Node:array(spec) return create(self, capi.MV_ARRAY, spec) end

--- Creates a matrix.
-- @param spec {rows = r, cols = c, ...}, and the optional fields of array()
function Node:matrix(spec) return create(self, capi.MV_MATRIX, spec) end

--- Creates a matrix that stores and sends only the rows that were ever changed.
-- @param spec {rows = r, cols = c, ...} as for matrix(), without init, but with:
--   initial = the value of elements that were never changed
--   initial_range, seed = this value is random within initial +- initial_range instead, and depends only on seed, row
--   and column
function Node:sparse(spec) return create(self, capi.MV_SPARSE, spec) end

--- Creates a table of `cols` numbers (default 1) for each 64-bit integer key; stores only keys that were changed.
-- @param spec {cols = c, ...} as for sparse(), and:
--   capacity = keys kept on all servers together; beyond it, each server drops its least recently used keys
function Node:keyvalue(spec) return create(self, capi.MV_KEYVALUE, spec or {}) end

--- Opens a table that exists already.
function Node:open(name) return Table.new(capi.mv_table_open(self.handle, name)) end

--- Like polyverso.doctor(), for this node: the transport to each peer, why it is not a better one, its latency.
function Node:doctor() return capi.mv_doctor_text(self.handle, capi.MV_JSON) end

--- The cluster's tables as JSON text.
function Node:tables() return capi.mv_table_list(self.handle) end

--- The state of the cluster: its members, and which of them wait for which. As text, or with {json = true} as JSON
-- text, whose fields docs/operations.md describes. Takes at most four seconds, even if other members do not answer.
function Node:status(how)
  return capi.mv_status_text(self.handle, how and how.json and capi.MV_JSON or 0)
end

--- The counters of this process, in Prometheus's text format.
function Node:metrics() return capi.mv_metrics_text(self.handle) end

--- The last messages, calls and waits of this node, as JSON in Chrome's trace event format.
function Node:trace() return capi.mv_trace_text(self.handle) end

--- Saves all tables, with their updaters' states and clocks, as "checkpoint-<number>" in a directory that all servers
-- see under this path. Collective: every worker calls it. The checkpoint contains each worker's changes before its
-- call, and none after it. Returns when the checkpoint is on disk; with async, when training may continue.
-- @param how {keep = the number of newest checkpoints to keep (default all), timeout = seconds, async = true}, or nil
function Node:save(directory, how)
  how = how or {}
  local options = values.call_options(how.async and capi.MV_ASYNC or 0, how.timeout)
  local request = capi.mv_checkpoint_save(self.handle, directory, how.keep or 0, options)
  return request and Request.new(request)
end

--- Loads all tables of a checkpoint, or of the newest complete one in a directory, on any number of servers.
-- Collective, between two barriers. Creates tables that do not exist yet; matrix() and its siblings, or open(), then
-- find them with their values. A missing or damaged checkpoint is an error that gives the reason, and nothing is
-- changed.
-- @param how {timeout = seconds, async = true}, or nil
function Node:load(path, how)
  how = how or {}
  local options = values.call_options(how.async and capi.MV_ASYNC or 0, how.timeout)
  local request = capi.mv_checkpoint_load(self.handle, path, options)
  return request and Request.new(request)
end

--- Leaves the cluster. A process that is also a server continues to serve until every worker has finished.
function Node:shutdown() capi.mv_shutdown(self.handle) end

return Node
