--- Numbers at the border: nested tables in, row tables out. Internal.

local capi = require("polyverso.capi")

local values = {}

local DTYPES = {
  f32 = capi.MV_F32, float = capi.MV_F32, [capi.MV_F32] = capi.MV_F32,
  f64 = capi.MV_F64, double = capi.MV_F64, [capi.MV_F64] = capi.MV_F64,
}

--- MV_F32 or MV_F64 of a name; nil is MV_F32.
function values.dtype(name)
  local dtype = DTYPES[name or "f32"]
  if not dtype then capi.raise(capi.MV_EDTYPE, ('dtype "%s": "f32" or "f64" is needed'):format(tostring(name))) end
  return dtype
end

--- A table of row tables as one flat table, row by row; anything else as it is.
function values.flat(data)
  if type(data) ~= "table" or type(data[1]) ~= "table" then return data end
  local flat, n = {}, 0
  for _, row in ipairs(data) do
    for _, value in ipairs(row) do
      n = n + 1
      flat[n] = value
    end
  end
  return flat
end

--- A copy that says which dtype its numbers are to have, for where no mv_table says it.
function values.with_dtype(flat, dtype)
  local copy = {dtype = dtype}
  for i = 1, #flat do copy[i] = flat[i] end
  return copy
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

--- How many ids a table, string or FFI array of row ids holds.
function values.row_count(rows)
  if type(rows) == "table" then return rows.count or rows.n or #rows end
  if type(rows) == "string" then return math.floor(#rows / 8) end
  return require("ffi").sizeof(rows) / 8
end

--- Seconds as the C API counts: nil = the node's default, negative or infinite = for ever.
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
