--- Conversions between Lua and the C API: nested tables in, row tables out. Internal.

local capi = require("polyverso.capi")
local names = require("polyverso.names")

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
for dtype, spellings in pairs(NAMES) do
  DTYPES[dtype] = dtype
  for _, name in ipairs(spellings) do DTYPES[name] = dtype end
end

--- A value that calls `ends` when it is collected, to be kept in a table: Lua 5.1 has no finalizers for tables.
function values.owner(ends)
  if not newproxy then return setmetatable({}, {__gc = ends}) end
  local proxy = newproxy(true)
  getmetatable(proxy).__gc = ends
  return proxy
end

--- The set of the names in a text, for checked(), whose message quotes names by `quote`.
function values.set_of(list, quote)
  local set = {}
  for name in list:gmatch("[%w_]+") do set[name] = true end
  return {names = list, set = set, quote = quote or '"'}
end

local NOTHING = {}

--- The table of options, or an empty one. Refuses unknown names: add(data, {row = 3}) would otherwise add to every row.
function values.checked(how, known)
  if how == nil then return NOTHING end
  if type(how) ~= "table" then
    capi.raise(capi.MV_EINVAL, ("options must be a table, such as {timeout = 5}, not a %s; known: %s"):format(type(how), known.names))
  end
  local set, step, state, first = known.set, next, how, nil
  if getmetatable(how) then step, state, first = pairs(how) end
  for name in step, state, first do
    if not set[name] then
      local similar = names.did_you_mean(name, names.words(known.names))
      capi.raise(capi.MV_EINVAL, ("unknown option %s%s%s; known: %s%s"):format(known.quote, tostring(name), known.quote, known.names, similar))
    end
  end
  return how
end

-- The number of a device by its name, "cuda:0", or nil for the host's memory.
function values.place(device)
  return type(device) == "number" and device or device and capi.mv_device_find(device) or capi.MV_HOST
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

--- Data with the dtype of its numbers, for calls without an mv_table that has one. The table of a script is copied.
function values.with_dtype(given, dtype, is_own)
  if type(given) ~= "table" or given.pointer or given.mv_tensor then return given end
  local numbers = given
  if not is_own then
    numbers = {n = given.n or #given}
    for i = 1, numbers.n do numbers[i] = given[i] end
  end
  numbers.dtype = dtype
  return numbers
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

--- Parameters as the library takes them, "learning_rate=0.5 momentum=0.9", in the order of their names.
function values.settings_words(parameters)
  local words = {}
  for name, value in pairs(parameters) do
    if type(name) ~= "string" then capi.raise(capi.MV_EINVAL, ("parameters must have names: {learning_rate = %s}"):format(tostring(value))) end
    if type(value) == "boolean" then value = value and 1 or 0 end
    if type(value) ~= "number" and type(value) ~= "string" then
      capi.raise(capi.MV_EINVAL, ("the parameter %s must be a number, not a %s"):format(name, type(value)))
    end
    if type(value) == "number" then
      local short = ("%.15g"):format(value)
      value = tonumber(short) == value and short or ("%.17g"):format(value)
    end
    words[#words + 1] = name .. "=" .. value
  end
  table.sort(words)
  return table.concat(words, " ")
end

--- settings_words() behind a name.
function values.settings_text(name, parameters)
  local words = values.settings_words(parameters)
  return words == "" and name or name .. " " .. words
end

--- Refuses what can't be called, before anything is changed; nil only with `may_be_nil`.
function values.check_callable(call, name, value, may_be_nil)
  local class = getmetatable(value)
  if type(value) == "function" or value == nil and may_be_nil or type(class) == "table" and class.__call then return end
  local given = value == nil and "nil" or "a " .. type(value)
  capi.raise(capi.MV_EINVAL, ("%s: %s must be a function%s, not %s"):format(call, name, may_be_nil and " or nil" or "", given))
end

--- The handle of a node; 0, that of polyverso.init(), for nil.
function values.node_handle(call, node)
  if node == nil then return 0 end
  if type(node) == "table" and type(node.handle) == "number" then return node.handle end
  capi.raise(capi.MV_EINVAL, ("%s: a node is needed, or nil for that of polyverso.init(), not a %s"):format(call, type(node)))
end

--- Converts seconds to the C API's milliseconds: nil = the node's default, infinite or -1 (MV_FOREVER) = no limit.
function values.milliseconds(seconds)
  if seconds == nil then return 0 end
  if type(seconds) ~= "number" then
    capi.raise(capi.MV_EINVAL, ("timeout must be a number of seconds, not a %s"):format(type(seconds)))
  end
  if seconds == capi.MV_FOREVER or seconds == math.huge then return capi.MV_FOREVER end
  if not (seconds >= 0) then -- luacheck: ignore 581 (NaN)
    local message = "timeout is %s: a number of seconds is needed, 0 or more; math.huge means no limit, nil the node's default"
    capi.raise(capi.MV_EINVAL, message:format(tostring(seconds)))
  end
  return math.max(1, math.ceil(seconds * 1000))
end

--- mv_call_options in its shortest form. A label is from arrays.label().
function values.call_options(flags, timeout, label)
  if timeout == nil and label == nil then return flags end
  return {flags = flags, timeout_ms = values.milliseconds(timeout), label = label or 0}
end

return values
