--- An array or matrix shared by all workers; from node:array(), node:matrix() or node:open().
--
-- Values of a matrix are a table of row tables, or flat, row by row; those of an array are a flat table. FFI memory of
-- the table's type goes in, and receives results, without a copy. `how` is nil or a table:
--   rows = {ids from 0}   instead of the whole table, in any order
--   timeout = seconds     instead of the node's default
--   async = true          returns a request at once

local capi = require("polyverso.capi")
local Request = require("polyverso.request")
local values = require("polyverso.values")

local Table = {}
Table.__index = Table

function Table.new(handle)
  local info = capi.mv_table_describe(handle)
  return setmetatable({
    handle = handle,
    name = info.name,
    dtype = info.dtype,
    rows = info.rows,
    cols = info.cols,
    is_matrix = info.kind == capi.MV_MATRIX,
  }, Table)
end

local NOTHING = {}
local KNOWN = {rows = true, out = true, timeout = true, async = true, wait = true}

-- A misspelt option must not pass for none: add(data, {row = 3}) would add to every row.
local function checked(how)
  for name in pairs(how or NOTHING) do
    if not KNOWN[name] then
      capi.raise(capi.MV_EINVAL, ('unknown option "%s"; known: rows, out, timeout, async, wait'):format(tostring(name)))
    end
  end
  return how or NOTHING
end

local function read(self, how, whole, some)
  how = checked(how)
  local count = how.rows and values.row_count(how.rows) or self.rows
  local out = how.out or {n = count * self.cols, dtype = self.dtype}
  local options = values.call_options(how.async and capi.MV_ASYNC or 0, how.timeout)
  local request
  if how.rows then
    request = some(self.handle, how.rows, out, options)
  else
    request = whole(self.handle, out, options)
  end
  local function result()
    if how.out then return out end
    out.n, out.dtype = nil, nil
    return self.is_matrix and values.rows_of(out, count, self.cols) or out
  end
  if request then return Request.new(request, result) end
  return result()
end

--- The table's values, with all earlier adds of this worker; in sync mode the same bits on all workers.
-- how.out receives them in place: FFI memory, or a table of the right length.
function Table:get(how) return read(self, how, capi.mv_table_get, capi.mv_table_get_rows) end

--- get() past sync mode's rounds: what the servers hold now. One worker alone may call it.
function Table:peek(how) return read(self, how, capi.mv_table_peek, capi.mv_table_peek_rows) end

local function write(self, data, how, whole, some)
  how = checked(how)
  local flags = how.async and capi.MV_ASYNC or how.wait == false and capi.MV_FORGET or 0
  local options = values.call_options(flags, how.timeout)
  local flat = values.flat(data)
  local request
  if how.rows then
    request = some(self.handle, how.rows, flat, options)
  else
    request = whole(self.handle, flat, options)
  end
  return request and Request.new(request)
end

--- Adds element by element; repeated rows add up. Returns when every server has applied it; with how.wait = false at
-- once, and its error, if any, comes from the next call on the table, barrier() or shutdown().
function Table:add(data, how) return write(self, data, how, capi.mv_table_add, capi.mv_table_add_rows) end

--- Assigns values, past updater and sync mode's rounds: for loading a model, between two barriers.
function Table:set(data, how) return write(self, data, how, capi.mv_table_set, capi.mv_table_set_rows) end

--- The fields of mv_table_info.
function Table:info() return capi.mv_table_describe(self.handle) end

--- Gives this handle back; the table lives on.
function Table:close() capi.mv_table_close(self.handle) end

--- Frees the table on all servers. One worker calls it, when nobody uses the table any more.
function Table:destroy() capi.mv_table_destroy(self.handle) end

return Table
