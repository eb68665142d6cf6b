--- An array, matrix, sparse matrix or key-value table, shared by all workers; from node:array(), node:matrix(),
-- node:sparse(), node:keyvalue() or node:open().
--
-- Values of a matrix are a table of row tables, or flat, row by row; those of an array, and of a key-value table with
-- one column, are a flat table. They may also be tensors, of polyverso.tensor or Torch. Data that knows its dimensions
-- must have the table's: a matrix of 3 x 2 takes no 2 x 3 values. FFI memory of the table's type is passed, and receives
-- results, without a copy: float, double, int64_t, int32_t, uint8_t, int8_t, and uint16_t for the bits of bf16. Tables
-- of numbers work for every dtype.
-- Integers are never truncated or rounded: those that no Lua number holds exactly are int64_t in LuaJIT, and an error
-- in Lua 5.1.
-- `how` is nil or a table:
--   rows = {ids from 0}   instead of the whole table, in any order
--   keys = {integers}     the same option for key-value tables: any 64-bit integers
--   timeout = seconds     instead of the node's default
--   async = true          returns a request at once

local arrays = require("polyverso.arrays")
local capi = require("polyverso.capi")
local data = require("polyverso.data")
local objects = require("polyverso.objects")
local Request = require("polyverso.request")
local tensor = require("polyverso.tensor")
local values = require("polyverso.values")

---@class polyverso.Table
---@field handle integer the mv_table for the C functions
---@field name string
---@field kind integer polyverso.MV_ARRAY, MV_MATRIX, MV_SPARSE or MV_KEYVALUE
---@field dtype integer polyverso.MV_F32 and so on
---@field rows integer
---@field cols integer
local Table = {}
Table.__index = Table

--- For the methods of nodes: the object for a handle of the C API.
---@param handle integer an mv_table
---@param life table the node's, from objects.life_of()
---@return polyverso.Table
function Table.new(handle, life)
  local info = capi.mv_table_describe(handle)
  life.tables[info.name] = (life.tables[info.name] or 0) + 1
  local is_flat = info.kind == capi.MV_ARRAY or info.kind == capi.MV_KEYVALUE and info.cols == 1
  return setmetatable({
    handle = handle,
    life = life,
    name = info.name,
    kind = info.kind,
    dtype = info.dtype,
    rows = info.rows,
    cols = info.cols,
    is_map = info.kind == capi.MV_KEYVALUE,
    is_flat = is_flat,
    plain_cols = is_flat and 0 or info.cols,
    needed = {cols = info.cols, is_flat = is_flat, dtype = info.dtype},
  }, Table)
end

local KNOWN, KNOWN_TO_SCAN = values.set_of("rows, keys, out, timeout, async, wait"), values.set_of("chunk")
local checked = values.checked

-- The ids of a call; nil for the whole table.
local function ids_of(how)
  local rows, keys = how.rows, how.keys
  local ids = rows or keys
  if not ids then return ids end
  if rows and keys then capi.raise(capi.MV_EINVAL, "rows and keys mean the same: pass only one of them") end
  if keys and type(ids) == "table" and type(rawget(ids, 1)) == "string" then  -- rawget: a tensor would read a value
    capi.raise(capi.MV_EDTYPE, ('keys are integers, not strings such as "%s": number or hash them'):format(ids[1]))
  end
  return data.ids(ids)
end

--- How messages name the table.
---@return string
function Table:described() return ('table "%s"'):format(self.name) end

-- The shape of the values for `count` rows; a key-value table has no number of rows of its own.
local function needed(self, count)
  self.needed.rows = count > 0 and count or nil
  return self.needed
end

local function flags_of(how) return how.async and capi.MV_ASYNC or how.wait == false and capi.MV_FORGET or 0 end

-- The result of a get: `given`, the caller's, or else `out` in the table's form.
local function received(self, out, count, given, copies)
  if given then
    if copies then arrays.copy_back(copies) end
    return given
  end
  out.n, out.dtype = nil, nil
  return self.is_flat and out or values.rows_of(out, count, self.cols)
end

-- Calls with tensors and nothing else take a shorter way: most of a call's time is spent on what else it may be given.
local plain_rows = capi.plain_rows

local function read(self, how, whole, some)
  local plain, to
  if how then plain, to = plain_rows(how, nil, self.plain_cols) end
  if plain then
    some(self.handle, plain, to, 0)
    return to
  end
  how = checked(how, KNOWN)
  local ids, given = ids_of(how), how.out
  local count, copies, out = ids and data.count(ids) or self.rows, nil, nil
  if given then
    out, copies = data.taken(given, needed(self, count), self)
  else
    out = {n = count * self.cols, dtype = self.dtype}
  end
  local options = values.call_options(flags_of(how), how.timeout)
  local request
  if ids then
    request = some(self.handle, ids, out, options)
  else
    request = whole(self.handle, out, options)
  end
  if not request then return received(self, out, count, given, copies) end
  return Request.new(request, function() return received(self, out, count, given, copies) end, "read", self)
end

--- The table's values, with all earlier adds of this worker. In sync mode all workers get the same bits; with a
--- staleness, the values are at most that many clocks behind any worker. Rows and keys that are not stored have their
--- initial value. how.out receives the values in place: FFI memory, or a table of the right length.
---@param how? polyverso.TableOptions
---@return polyverso.Values|polyverso.Request values  a list of numbers or of rows, or how.out; with async, the request
function Table:get(how) return read(self, how, capi.mv_table_get, capi.mv_table_get_rows) end

--- A get that ignores sync mode's rounds and staleness: the servers' current values. A single worker may call it.
---@param how? polyverso.TableOptions
---@return polyverso.Values|polyverso.Request values  as get() returns them
function Table:peek(how) return read(self, how, capi.mv_table_peek, capi.mv_table_peek_rows) end

--- Iterates over the stored rows of a sparse or key-value table: `for ids, values in t:scan() do`. Each iteration
--- returns at most how.chunk rows (default 16384): a table of ids, and values as from get(). A row that is stored during
--- the whole scan is returned exactly once; one that is added or removed meanwhile, at most once. The order has no
--- meaning.
---@param how? polyverso.ScanOptions
---@return fun(): integer[]?, polyverso.Values?
function Table:scan(how)
  local chunk = checked(how, KNOWN_TO_SCAN).chunk or 16384
  local cursor = 0
  return function()
    while cursor ~= -1 do
      local ids, flat = {n = chunk}, {n = chunk * self.cols, dtype = self.dtype}
      local found
      cursor, found = capi.mv_table_scan(self.handle, cursor, ids, flat)
      if found > 0 then
        ids.n, flat.n, flat.dtype = nil, nil, nil
        return ids, self.is_flat and flat or values.rows_of(flat, found, self.cols)
      end
    end
  end
end

local function write(self, changes, how, whole, some)
  local plain = how and plain_rows(how, changes, self.plain_cols)
  if plain then return some(self.handle, plain, changes, 0) end
  how = checked(how, KNOWN)
  if changes == nil then capi.raise(capi.MV_EDTYPE, self:described() .. ": nil was given instead of values") end
  local ids, options = ids_of(how), values.call_options(flags_of(how), how.timeout)
  local given = data.given(changes, needed(self, ids and data.count(ids) or self.rows), self)
  local request
  if ids then
    request = some(self.handle, ids, given, options)
  else
    request = whole(self.handle, given, options)
  end
  return request and Request.new(request, nil, "write", self)
end

--- Adds element by element, through the table's updater; repeated rows are summed first. Returns when every server has
--- applied the add. With how.wait = false it returns at once, and its error, if any, is raised by the next call on the
--- table, barrier() or shutdown().
---@param delta polyverso.Values of the table's size, or of the rows in how.rows
---@param how? polyverso.TableOptions
---@return polyverso.Request? request  with async
function Table:add(delta, how) return write(self, delta, how, capi.mv_table_add, capi.mv_table_add_rows) end

--- Assigns values, bypassing the updater and sync mode's rounds: for loading a model, between two barriers. For
--- repeated rows the last one counts.
---@param new polyverso.Values of the table's size, or of the rows in how.rows
---@param how? polyverso.TableOptions
---@return polyverso.Request? request  with async
function Table:set(new, how) return write(self, new, how, capi.mv_table_set, capi.mv_table_set_rows) end

--- Removes rows of a sparse table, or keys of a key-value table, with their updater's state: they then read as their
--- initial value. Rows and keys that are not stored are skipped. `how` as for add().
---@param ids integer[]|integer|polyverso.Tensor
---@param how? polyverso.TableOptions
---@return polyverso.Request? request  with async
function Table:erase(ids, how)
  how = checked(how, KNOWN)
  local request = capi.mv_table_erase_rows(self.handle, data.ids(ids), values.call_options(flags_of(how), how.timeout))
  return request and Request.new(request, nil, "erase", self)
end

-- The text of an updater, whose parameters may be in the table of options.
local function updater_of(updater, how)
  local parameters, options = {}, {}
  for name, value in pairs(how) do
    if KNOWN.set[name] then options[name] = value else parameters[name] = value end
  end
  local text = type(updater) == "table" and tostring(updater) or updater
  if type(text) ~= "string" then
    capi.raise(capi.MV_EINVAL, ('an updater is needed, such as "sgd rate=0.1", not a %s'):format(type(updater)))
  end
  return values.settings_text(text, parameters), options
end

--- Sets the updater of later adds, or new parameters for it: "adagrad rate=0.05", or "adagrad", {rate = 0.05}.
--- mv_table_set_updater() in polyverso.h has the list. One worker calls it.
---@param updater string|polyverso.Optimizer
---@param how? table parameters of the updater, timeout, async
---@return polyverso.Request? request  with async
function Table:set_updater(updater, how)
  if type(how) ~= "table" then how = checked(how, KNOWN) end
  updater, how = updater_of(updater, how)
  local request = capi.mv_table_set_updater(self.handle, updater, values.call_options(flags_of(how), how.timeout))
  return request and Request.new(request, nil, "set_updater", self)
end

--- Ends one of this worker's iterations on a table that has a staleness. Never waits.
function Table:clock() capi.mv_table_clock(self.handle) end

--- The number of rows; for a key-value table, the number of stored keys, which the servers report. Also #t, except in
--- 5.1.
---@return integer
function Table:size() return self.is_map and self:info().stored or self.rows end

Table.__len = Table.size

--- The fields of mv_table_info; asks the servers.
---@return table fields of mv_table_info
function Table:info() return capi.mv_table_describe(self.handle) end

local function ended(self, why)
  local open = self.life.tables[self.name]
  self.life.tables[self.name] = open and open > 1 and open - 1 or nil
  self.ended = why
end

--- Closes this handle; the table continues to exist. A second close() does nothing.
function Table:close()
  if objects.end_of(self) then return end
  capi.mv_table_close(self.handle)
  ended(self, "after close()")
end

--- Frees the table on all servers. One worker calls it, when no worker uses the table any more.
function Table:destroy()
  capi.mv_table_destroy(self.handle)
  ended(self, "after destroy()")
end

--- <polyverso.Table "weights", 3 x 2 f32>
function Table:__tostring()
  local rows = self.is_map and "keys" or ("%.0f"):format(self.rows)
  local shape = self.is_flat and rows or rows .. " x " .. self.cols
  local sparse = self.kind == capi.MV_SPARSE and ", sparse" or self.is_map and ", key-value" or ""
  local why = objects.end_of(self)
  return ('<polyverso.Table "%s", %s %s%s%s>'):format(self.name, shape, tensor.name_of(self.dtype), sparse, why and ", " .. why or "")
end

return objects.finish("table", Table, {close = true})
