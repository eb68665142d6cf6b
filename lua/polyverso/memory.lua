--- What the C side can't ask of LuaJIT's FFI values: where memory lies, and integers of 64 bits. LuaJIT only; internal.

local bit = require("bit")
local ffi = require("ffi")

local memory = {}

-- The dtypes of polyverso.h, by the element's C type. There is no bfloat16 in C: uint16_t are its bits.
local RAW, F32, F64, I64, I32, U8, BF16, I8 = 0, 1, 2, 3, 4, 5, 7, 8
local ELEMENTS = {
  float = {dtype = F32, size = 4},
  double = {dtype = F64, size = 8},
  int64_t = {dtype = I64, size = 8},
  int = {dtype = I32, size = 4},
  ["unsigned char"] = {dtype = U8, size = 1},
  -- Where C's char is signed LuaJIT calls int8_t char, too: bytes then, which tables of int8 take as well.
  ["signed char"] = {dtype = I8, size = 1},
  ["unsigned short"] = {dtype = BF16, size = 2},
  char = {dtype = RAW, size = 1},
}

-- What is known of a C type: {dtype, size, is_array, is_const}, or a string that says why it is refused. By ctype id.
local known = {}

local function describe(ctype)
  local name = tostring(ctype):match("^ctype<(.*)>$")
  local element, rest = name:match("^([%w_ ]-) ?([%(%[%*].*)$")
  if not element then return ("FFI memory of type %s: an array or a pointer is needed"):format(name) end
  local is_const = element:find("^const ") ~= nil
  local found = ELEMENTS[(element:gsub("^const ", ""))]
  -- A pointer to an array, or to a pointer, is no block of numbers.
  local is_array = rest:find("^%[") or rest:find("^%(&%)%[")
  if not found or not (is_array or rest == "*") then
    local needed = "FFI memory of type %s: float, double, int64_t, int32_t, uint8_t or int8_t is needed; row ids are int64_t"
    return needed:format(name)
  end
  return {dtype = found.dtype, size = found.size, is_array = is_array ~= nil, is_const = is_const}
end

--- Address, elements and dtype; or nil and what is wrong.
-- @param count elements behind a pointer; of an array the type knows
function memory.look(cdata, count, writable)
  local ctype = ffi.typeof(cdata)
  local id = tonumber(ctype)
  local type = known[id]
  if not type then
    type = describe(ctype)
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

local int64, uint64 = ffi.typeof("int64_t"), ffi.typeof("uint64_t")
local LOW = int64(2 ^ 32 - 1)
local BEYOND = uint64(2 ^ 63)

--- The upper 32 bits, with sign, and the lower ones of an int64_t, or of an uint64_t that fits one; else nil.
function memory.halves(cdata)
  if ffi.istype(uint64, cdata) and cdata < BEYOND then cdata = int64(cdata) end
  if not ffi.istype(int64, cdata) then return nil end
  return tonumber(bit.arshift(cdata, 32)), tonumber(bit.band(cdata, LOW))
end

--- The int64_t of those.
function memory.int64(high, low) return int64(high) * int64(2 ^ 32) + int64(low) end

return memory
