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
  local initial = spec.init ~= nil and values.flat(spec.init) or nil
  if type(initial) == "table" and not initial.pointer then initial = values.with_dtype(initial, passed.dtype) end
  return Table.new(capi.mv_table_create(self.handle, passed, initial))
end

--- Creates an array. Collective: every worker makes the same call.
-- @param spec {size = n, dtype = "f32" or "f64", name = ..., init = values, reject_nonfinite = true}; of the workers'
-- initial values worker 0's count
function Node:array(spec) return create(self, capi.MV_ARRAY, spec) end

--- Creates a matrix.
-- @param spec {rows = r, cols = c, ...}, otherwise as array()
function Node:matrix(spec) return create(self, capi.MV_MATRIX, spec) end

--- A table that exists already.
function Node:open(name) return Table.new(capi.mv_table_open(self.handle, name)) end

--- The cluster's tables as JSON text.
function Node:tables() return capi.mv_table_list(self.handle) end

--- Leaves the cluster. A process that is also a server goes on serving until every worker has finished.
function Node:shutdown() capi.mv_shutdown(self.handle) end

return Node
