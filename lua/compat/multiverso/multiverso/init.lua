--- Multiverso's Lua API, on polyverso. It uses Torch's tensors if Torch or its stand-in is loaded, otherwise plain Lua
--- tables. It accepts both as data.
--
--     local multiverso = require("multiverso")
--     multiverso.init(true)
--     local table = multiverso.ArrayTableHandler:new(100, initial_values)
--     table:add(gradient)
--     local values = table:get()
--     multiverso.shutdown()

local capi = require("polyverso.capi")
local data = require("polyverso.data")
local foreign = require("polyverso.foreign")
local names = require("polyverso.names")
local objects = require("polyverso.objects")
local tensors = require("multiverso.tensors")
local values = require("polyverso.values")

local multiverso = {}

-- Polyverso's names in the messages of its errors, as patterns, and this module's.
local NAMES = {
  {"polyverso%.init", "multiverso.init"}, {"node:shutdown", "multiverso.shutdown"}, {"node:barrier", "multiverso.barrier"},
  {"node:num_workers", "multiverso.num_workers"}, {"node:worker_id", "multiverso.worker_id"}, {"node:server_id", "multiverso.server_id"},
  {"node:array", "multiverso.ArrayTableHandler:new"}, {"node:matrix", "multiverso.MatrixTableHandler:new"},
}

-- The results of pcall(), or its error with this module's names.
local function finish(ended, ...)
  if ended then return ... end
  local failure = ...
  if type(failure) == "table" and type(failure.text) == "string" then
    for _, name in ipairs(NAMES) do failure.text = failure.text:gsub(name[1], name[2]) end
  end
  capi.raise_again(failure)
end

-- The function, with errors that have this module's names.
local function in_our_words(call)
  return function(...) return finish(pcall(call, ...)) end
end

--- Joins the cluster; call it once, before training. All workers pass the same `sync`: with true, they make the same adds
--- and gets, and get the same values. `polyverso run --sync` overrules false, with a warning.
---@type fun(sync?: boolean)
multiverso.init = in_our_words(function(sync)
  local launchers = not sync and os.getenv("POLYVERSO_SYNC")
  capi.mv_init(not launchers and {sync = sync and 1 or 0} or nil)
  if launchers and sync == false and capi.mv_is_sync(0) == 1 then
    io.stderr:write(("multiverso.init(false): POLYVERSO_SYNC=%s overrules it: sync mode\n"):format(launchers))
  end
end)

--- Waits until all workers have called it and all their earlier adds are in the tables.
---@type fun()
multiverso.barrier = in_our_words(function() capi.mv_barrier(0) end)

--- Leaves the cluster; call it once, after training.
---@type fun()
multiverso.shutdown = in_our_words(function()
  capi.mv_shutdown(0)
  objects.shut(0)
end)

--- The number of workers.
---@type fun(): integer
multiverso.num_workers = in_our_words(function() return capi.mv_num_workers(0) end)

--- This worker's number, from 0.
---@type fun(): integer
multiverso.worker_id = in_our_words(function() return capi.mv_worker_id(0) end)

--- This process's number among the servers, from 0.
---@type fun(): integer
multiverso.server_id = in_our_words(function() return capi.mv_server_id(0) end)

-- Data in a form that the C API accepts: a tensor, or a flat table of numbers. Arrays take data of any dimensions, as
-- Multiverso does; those of a matrix, `needed`, must fit.
local function data_of(given, needed)
  if not tensors.is_tensor(given) then return data.given(given, needed or {}, needed and "this matrix" or "this array") end
  if needed then data.check_shape(foreign.shape(given), needed, "this matrix") end
  return tensors.as_data(given)
end

local function needed_of(spec) return spec.kind == capi.MV_MATRIX and {rows = spec.rows, cols = spec.cols} or nil end

--- A new table of make(value) for each value.
local function map(flat, make)
  local result = {}
  for i, value in ipairs(flat) do result[i] = make(value) end
  return result
end

-- This worker's share of the initial values, and an equal number of zeros.
local function share_of(init_value, workers, needed)
  if tensors.is_tensor(init_value) then
    local share = init_value:float():clone():div(workers)
    return data_of(share, needed), data_of(share:clone():zero())
  end
  local flat = data_of(init_value, needed)
  return map(flat, function(value) return value / workers end), map(flat, function() return 0 end)
end

-- Refuses sizes that are no integers, by their names here.
local function check_size(call, name, size)
  if type(size) == "number" and size % 1 == 0 then return end
  local given = type(size) == "string" and ('"%s"'):format(size) or tostring(size)
  capi.raise(capi.MV_EINVAL, ("%s: %s must be an integer, not %s"):format(call, name, given))
end

local create = in_our_words(function(class, spec, init_value, init)
  local handle
  if type(class) ~= "table" or class.add == nil then
    capi.raise(capi.MV_EINVAL, "new() is called with a colon, multiverso.ArrayTableHandler:new(size), not with a dot")
  end
  local is_matrix = spec.kind == capi.MV_MATRIX
  local call = is_matrix and "node:matrix" or "node:array"
  names.called("mv_table_create", call)
  check_size(call, is_matrix and "num_row" or "size", spec.rows)
  if is_matrix then check_size(call, "num_col", spec.cols) end
  if init ~= nil and init ~= "master" and init ~= "average" then
    capi.raise(capi.MV_EINVAL, ('init is "%s": "master" or "average" is expected'):format(tostring(init)))
  elseif init ~= "average" or init_value == nil then
    handle = capi.mv_table_create(0, spec, init_value ~= nil and data_of(init_value, needed_of(spec)) or nil)
  else
    local share, zeros = share_of(init_value, capi.mv_num_workers(0), needed_of(spec))
    handle = capi.mv_table_create(0, spec, zeros)
    capi.mv_table_add(handle, share)
    capi.mv_barrier(0)
  end
  return setmetatable({handle = handle, life = objects.life_of(0), rows = spec.rows, cols = spec.cols or 1}, class)
end)

local function text_of(self, kind, shape)
  local why = objects.end_of(self)
  return ("<multiverso.%s %s%s>"):format(kind, shape, why and ", " .. why or "")
end

local function add_flags(sync) return sync and 0 or capi.MV_FORGET end

--- A one-dimensional float table shared by all workers.
---@class multiverso.ArrayTableHandler
local ArrayTableHandler = {}
ArrayTableHandler.__index = ArrayTableHandler
multiverso.ArrayTableHandler = ArrayTableHandler

--- Creates the table; every worker makes the same call.
---@param size integer number of values
---@param init_value? table|number[] the initial values, or a tensor; nil = zeros, on all workers
---@param init? "master"|"average" "master" (or nil): the master's initial values count; "average": the mean of all workers'
--- initial values, which every worker must give, and which counts as one add of each worker
---@return multiverso.ArrayTableHandler
function ArrayTableHandler:new(size, init_value, init)
  return create(self, {kind = capi.MV_ARRAY, rows = size}, init_value, init)
end

--- Adds `size` values.
---@param delta table|number[] numbers, or a tensor
---@param sync? boolean true: wait until the servers have applied it; otherwise return at once
function ArrayTableHandler:add(delta, sync) capi.mv_table_add(self.handle, data_of(delta), add_flags(sync)) end

--- The table's values: a new FloatTensor where Torch is loaded, else a new table of `size` numbers.
---@return table
function ArrayTableHandler:get()
  local tensor = tensors.filled(function(memory) capi.mv_table_get(self.handle, memory) end, self.rows)
  if tensor then return tensor end
  local result = {n = self.rows}
  capi.mv_table_get(self.handle, result)
  result.n = nil
  return result
end

--- <multiverso.ArrayTableHandler 100>
function ArrayTableHandler:__tostring() return text_of(self, "ArrayTableHandler", ("%.0f"):format(self.rows)) end

objects.finish("ArrayTableHandler", ArrayTableHandler)

--- A two-dimensional float table shared by all workers.
---@class multiverso.MatrixTableHandler
local MatrixTableHandler = {}
MatrixTableHandler.__index = MatrixTableHandler
multiverso.MatrixTableHandler = MatrixTableHandler

--- Creates the table; every worker makes the same call.
---@param num_row integer
---@param num_col integer
---@param init_value? table the initial values, a tensor, row tables or flat, row by row; nil = zeros, on all workers
---@param init? "master"|"average" as for arrays
---@return multiverso.MatrixTableHandler
function MatrixTableHandler:new(num_row, num_col, init_value, init)
  return create(self, {kind = capi.MV_MATRIX, rows = num_row, cols = num_col}, init_value, init)
end

--- Adds values: a tensor, row tables or flat.
---@param delta table a tensor, row tables or flat
---@param row_ids? integer[] ids from 0, or a tensor of them, in any order, repeats add up; nil = all rows
---@param sync? boolean true: wait until the servers have applied it; otherwise return at once
function MatrixTableHandler:add(delta, row_ids, sync)
  if row_ids == true then
    capi.raise(capi.MV_EDTYPE, "row_ids is true, and must be a table of integers; sync comes after it: add(delta, nil, true)")
  elseif row_ids then
    local ids = data.ids(row_ids, "row_ids")
    capi.mv_table_add_rows(self.handle, ids, data_of(delta, {rows = data.count(ids), cols = self.cols}), add_flags(sync))
  else
    capi.mv_table_add(self.handle, data_of(delta, {rows = self.rows, cols = self.cols}), add_flags(sync))
  end
end

--- The table's values: a new FloatTensor of rows where Torch is loaded, else a new table of row tables.
---@param row_ids? integer[] ids from 0, or a tensor of them, in any order; nil = all rows
---@return table
function MatrixTableHandler:get(row_ids)
  local ids = row_ids and data.ids(row_ids, "row_ids")
  local count = ids and data.count(ids) or self.rows
  local function fill(memory)
    if ids then
      capi.mv_table_get_rows(self.handle, ids, memory)
    else
      capi.mv_table_get(self.handle, memory)
    end
    return memory
  end
  local tensor = tensors.filled(fill, count, self.cols)
  if tensor then return tensor end
  return values.rows_of(fill{n = count * self.cols}, count, self.cols)
end

--- <multiverso.MatrixTableHandler 3 x 2>
function MatrixTableHandler:__tostring() return text_of(self, "MatrixTableHandler", ("%.0f x %.0f"):format(self.rows, self.cols)) end

objects.finish("MatrixTableHandler", MatrixTableHandler)

--- new(), by its name in Multiverso's documentation.
---@type fun(self: any, num_row: integer, num_col: integer, init_value?: table, init?: "master"|"average"): multiverso.MatrixTableHandler
MatrixTableHandler.New = MatrixTableHandler.new

return multiverso
