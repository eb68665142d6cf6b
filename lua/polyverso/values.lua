--- Conversions between Lua and the C API: nested tables in, row tables out. Internal.

local capi = require("polyverso.capi")

local values = {}

local NAMES = {
  [capi.MV_F32] = {"f32", "float", "float32"},
  [capi.MV_F64] = {"f64", "double", "float64"},
  [capi.MV_I64] = {"i64", "int64", "int64_t"},
  [capi.MV_I32] = {"i32", "int32", "int32_t"},
  [capi.MV_U8] = {"u8", "uint8", "uint8_t"},
  [capi.MV_I8] = {"i8", "int8", "int8_t"},
  [capi.MV_F16] = {"f16", "float16"},
  [capi.MV_BF16] = {"bf16", "bfloat16"},
}
local DTYPES = {}
for dtype, names in pairs(NAMES) do
  DTYPES[dtype] = dtype
  for _, name in ipairs(names) do DTYPES[name] = dtype end
end

--- A value that calls `ends` when it is collected, to be kept in a table: Lua 5.1 has no finalizers for tables.
function values.owner(ends)
  if not newproxy then return setmetatable({}, {__gc = ends}) end
  local proxy = newproxy(true)
  getmetatable(proxy).__gc = ends
  return proxy
end

--- The set of the names in a text, for checked().
function values.set_of(names)
  local set = {}
  for name in names:gmatch("%a+") do set[name] = true end
  return {names = names, set = set}
end

local NOTHING = {}

--- The table of options, or an empty one. Refuses unknown names: add(data, {row = 3}) would otherwise add to every row.
function values.checked(how, known)
  for name in pairs(how or NOTHING) do
    if not known.set[name] then
      capi.raise(capi.MV_EINVAL, ('unknown option "%s"; known: %s'):format(tostring(name), known.names))
    end
  end
  return how or NOTHING
end

--- The mv_dtype of a name; nil is MV_F32.
function values.dtype(name)
  local dtype = DTYPES[name or "f32"]
  if not dtype then
    local needed = 'dtype "%s": one of f32, f64, i64, i32, u8, i8, f16, bf16 is needed'
    capi.raise(capi.MV_EDTYPE, needed:format(tostring(name)))
  end
  return dtype
end

--- A table of row tables as one flat table, row by row; anything else unchanged.
function values.flat(data)
  if type(data) ~= "table" or data.mv_tensor or type(data[1]) ~= "table" then return data end
  local flat, n = {}, 0
  for _, row in ipairs(data) do
    for _, value in ipairs(row) do
      n = n + 1
      flat[n] = value
    end
  end
  return flat
end

--- The data with the dtype of its numbers, for calls without an mv_table that has one.
function values.with_dtype(data, dtype)
  local flat = values.flat(data)
  if type(flat) ~= "table" or flat.pointer or flat.mv_tensor then return flat end
  if flat == data then -- the caller's own table, which must not be changed
    flat = {}
    for i = 1, data.n or #data do flat[i] = data[i] end
  end
  flat.dtype = dtype
  return flat
end

--- A flat table as a table of row tables.
function values.rows_of(flat, count, cols)
  local rows = {}
  for r = 1, count do
    local row, before = {}, (r - 1) * cols
    for c = 1, cols do row[c] = flat[before + c] end
    rows[r] = row
  end
  return rows
end

--- The number of ids in a table, string, tensor or FFI array of row ids.
function values.row_count(rows)
  if type(rows) == "table" and rows.mv_tensor then return rows:count() end
  if type(rows) == "table" then return rows.count or rows.n or #rows end
  if type(rows) == "string" then return math.floor(#rows / 8) end
  return require("ffi").sizeof(rows) / 8
end

--- Converts seconds to the C API's milliseconds: nil = the node's default, negative or infinite = no deadline.
function values.milliseconds(seconds)
  if seconds == nil then return 0 end
  if seconds < 0 or seconds == math.huge then return capi.MV_FOREVER end
  return math.max(1, math.ceil(seconds * 1000))
end

--- mv_call_options in its shortest form.
function values.call_options(flags, timeout)
  if timeout == nil then return flags end
  return {flags = flags, timeout_ms = values.milliseconds(timeout)}
end

return values
