--- Data of tables: a call's values in a form that the C API takes, checked against the table's shape. Internal.
--
-- A list of lists, a tensor and a two-dimensional FFI array know their dimensions, which must be those of the table.
-- Flat data only needs the right number of values.

local arrays = require("polyverso.arrays")
local capi = require("polyverso.capi")
local foreign = require("polyverso.foreign")
local tensor = require("polyverso.tensor")

local data = {}

-- Refuses the data of `what`, a text or an object.
local function refuse(status, what, format, ...)
  capi.raise(status, (type(what) == "string" and what or what:described()) .. ": " .. format:format(...))
end

-- How messages write dimensions: "3 x 2".
local function written(shape)
  local words = {}
  for i, length in ipairs(shape) do words[i] = ("%.0f"):format(length) end
  return table.concat(words, " x ")
end

-- Whether the dimensions behind the first one divide the columns, as those of a convolution's kernels do.
local function divides(shape, needed)
  local cols = 1
  for k = 2, #shape do cols = cols * shape[k] end
  return shape[1] == needed.rows and cols == needed.cols
end

--- One dimension fits everything, and everything fits one dimension: the C functions count the values.
function data.check_shape(shape, needed, what)
  if #shape < 2 or needed.is_flat or divides(shape, needed) then return end
  refuse(capi.MV_ESHAPE, what, "%s values given, %s needed", written(shape), written{needed.rows, needed.cols})
end

-- A list of lists as one flat table, row by row.
local function flatten(rows, needed, what)
  local flat, n, cols = {}, 0, #rows[1]
  for i = 1, #rows do
    local row = rows[i]
    if type(row) ~= "table" or row.mv_tensor or row.pointer then
      refuse(capi.MV_EDTYPE, what, "row 1 is a list of numbers, but row %d is a %s", i, type(row))
    end
    if #row ~= cols then refuse(capi.MV_ESHAPE, what, "the rows have different lengths: row 1 has %d values, row %d has %d", cols, i, #row) end
    for j = 1, cols do flat[n + j] = row[j] end
    n = n + cols
  end
  if type(rows[1][1]) == "table" then refuse(capi.MV_ESHAPE, what, "the lists are nested too deeply: rows of numbers are needed") end
  if needed then data.check_shape({#rows, cols}, needed, what) end
  flat.n, flat.dtype = n, rows.dtype
  return flat, {#rows, cols}
end

local FLOATS = {f32 = true, f64 = true, f16 = true, bf16 = true}

-- A Torch tensor of floats as one of the table's dtype: scripts compute with doubles, and tables hold f32 by default.
local function converted(made, dtype)
  local wanted = dtype and tensor.name_of(dtype)
  if not wanted or made:dtype() == wanted or not (FLOATS[made:dtype()] and FLOATS[wanted]) then return made end
  return made:cast(wanted)
end

local loaded = package.loaded

-- Whether the value is a tensor of Torch, whose module takes long to ask.
local function is_foreign(value)
  return loaded.torch ~= nil and type(value) ~= "cdata" and not tensor.is_tensor(value) and foreign.is_tensor(value)
end

-- What a value is that is no data: a storage of Torch has its own name.
local function kind_of(value)
  local torch = foreign.torch()
  local kind = (torch and torch.type or type)(value)
  return kind == "nil" and kind or kind == "number" and "a single number" or "a " .. kind
end

-- The value, of which a tensor and FFI memory know their dimensions.
local function measured(value, needed, what)
  if needed.is_flat then return value end
  if tensor.is_tensor(value) then
    local dims, first, second = capi.tensor_lengths(value.mv_tensor)
    if dims > 1 and not (dims == 2 and first == needed.rows and second == needed.cols) then data.check_shape(value:shape(), needed, what) end
    return value
  end
  if not arrays.is_memory(value) then return value end
  local shape = type(value) == "table" and value.shape or arrays.shape_of_memory(value)
  if shape then data.check_shape(shape, needed, what) end
  return value
end

--- Values for a call that reads them.
-- @param needed  {rows = r, cols = c, is_flat = whether the table has one dimension, dtype = of the table}; nil rows:
-- only the C function knows
-- @param what  the table, for messages
function data.given(value, needed, what)
  local kind = type(value)
  if kind == "table" and not value.mv_tensor and not value.pointer and not foreign.is_tensor(value) then
    if type(value[1]) == "table" then return (flatten(value, needed.rows and needed, what)) end
    return value
  end
  if kind ~= "table" and kind ~= "cdata" and not is_foreign(value) then
    refuse(capi.MV_EDTYPE, what, "a table of numbers, a tensor or FFI memory is needed, not %s", kind_of(value))
  end
  if not needed.rows then return foreign.is_tensor(value) and converted(arrays.one(value), needed.dtype) or value end
  if not is_foreign(value) then return measured(value, needed, what) end
  local made = arrays.one(value)
  data.check_shape(made:shape(), needed, what)
  return converted(made, needed.dtype)
end

--- Memory for a call that writes results, and for Torch's tensors what arrays.copy_back() needs after it, or nil.
function data.taken(value, needed, what)
  if not is_foreign(value) then
    if type(value) ~= "table" and type(value) ~= "cdata" then
      refuse(capi.MV_EDTYPE, what, "`out` must be a table, a tensor or FFI memory, not a %s", type(value))
    end
    return measured(value, needed, what)
  end
  local copies = {}
  local made = arrays.one(value, copies)
  data.check_shape(made:shape(), needed, what)
  local wanted = converted(made, needed.dtype)
  if wanted ~= made then table.insert(copies, 1, {from = wanted, to = made}) end
  return wanted, copies
end

--- Row ids, or keys: a table of integers, a tensor or FFI memory of them.
-- @param what  what messages call them, "rows" by default
function data.ids(value, what)
  if foreign.is_tensor(value) then
    if value:nElement() == 0 then return {} end
    local made = arrays.one(value)
    if made:dtype() == "i64" then return made end
    return value:contiguous():view(value:nElement()):totable() -- the C function checks that these are integers
  end
  if type(value) == "table" or type(value) == "cdata" then return value end
  local example = type(value) == "number" and value or 0
  refuse(capi.MV_EDTYPE, what or "rows", "a table of integers, such as {%s}, is needed, not a %s", example, type(value))
end

--- The number of ids().
function data.count(ids)
  if type(ids) ~= "table" then return require("ffi").sizeof(ids) / 8 end
  if ids.mv_tensor then return ids:count() end
  return ids.count or ids.n or #ids
end

--- Lists of lists of numbers as a flat table and its shape, which must be rectangular; any other list unchanged.
function data.flat(value, what)
  if type(value) ~= "table" or value.mv_tensor or value.pointer or foreign.is_tensor(value) or type(value[1]) ~= "table" then return value end
  return flatten(value, nil, what)
end

return data
