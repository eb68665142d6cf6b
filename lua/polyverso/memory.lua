--- Where FFI memory lies, for the C side, which can't ask. LuaJIT only; internal.

local ffi = require("ffi")

-- The dtypes of polyverso.h, by the element's C type.
local RAW, F32, F64, I64 = 0, 1, 2, 3
local ELEMENTS = {
  float = {dtype = F32, size = 4},
  double = {dtype = F64, size = 8},
  int64_t = {dtype = I64, size = 8},
  ["unsigned char"] = {dtype = RAW, size = 1},
  char = {dtype = RAW, size = 1},
}

-- What is known of a C type: {dtype, size, is_array, is_const}, or a string that says why it is refused. By ctype id.
local known = {}

local function look(ctype)
  local name = tostring(ctype):match("^ctype<(.*)>$")
  local element, rest = name:match("^([%w_ ]-) ?([%(%[%*].*)$")
  if not element then return ("FFI memory of type %s: an array or a pointer is needed"):format(name) end
  local is_const = element:find("^const ") ~= nil
  local found = ELEMENTS[(element:gsub("^const ", ""))]
  -- A pointer to an array, or to a pointer, is no block of numbers.
  local is_array = rest:find("^%[") or rest:find("^%(&%)%[")
  if not found or not (is_array or rest == "*") then
    return ("FFI memory of type %s: float, double or, for row ids, int64_t is needed"):format(name)
  end
  return {dtype = found.dtype, size = found.size, is_array = is_array ~= nil, is_const = is_const}
end

--- Address, elements and dtype; or nil and what is wrong.
-- @param count elements behind a pointer; of an array the type knows
return function(cdata, count, writable)
  local ctype = ffi.typeof(cdata)
  local id = tonumber(ctype)
  local type = known[id]
  if not type then
    type = look(ctype)
    known[id] = type
  end
  if not type.dtype then return nil, type end
  if writable and type.is_const then return nil, "constant FFI memory, results need memory to go to" end
  if type.is_array then
    count = ffi.sizeof(cdata) / type.size
  elseif not count then
    return nil, "an FFI pointer, which does not know its length: pass {pointer = p, count = n}"
  end
  return tonumber(ffi.cast("intptr_t", ffi.cast("const void *", cdata))), count, type.dtype
end
