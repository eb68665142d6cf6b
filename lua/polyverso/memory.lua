--- FFI operations that the C side cannot do: the address of FFI memory, and 64-bit integers. LuaJIT only; internal.

local bit = require("bit")
local ffi = require("ffi")

local memory = {}

-- The dtypes of polyverso.h, by the element's C type. C has no bfloat16: uint16_t holds its bits.
local RAW, F32, F64, I64, I32, U8, BF16, I8 = 0, 1, 2, 3, 4, 5, 7, 8
local ELEMENTS = {
  float = {dtype = F32, size = 4},
  double = {dtype = F64, size = 8},
  int64_t = {dtype = I64, size = 8},
  int = {dtype = I32, size = 4},
  ["unsigned char"] = {dtype = U8, size = 1},
  -- Where C's char is signed, LuaJIT also calls int8_t `char`: it is then MV_RAW, which int8 tables accept, too.
  ["signed char"] = {dtype = I8, size = 1},
  ["unsigned short"] = {dtype = BF16, size = 2},
  char = {dtype = RAW, size = 1},
}

-- Descriptions of C types by ctype id: {dtype, size, is_array, is_const}, or a string with the reason for refusal.
local known = {}

local function describe(ctype)
  local name = tostring(ctype):match("^ctype<(.*)>$")
  local element, rest = name:match("^([%w_ ]-) ?([%(%[%*].*)$")
  if not element then return ("FFI memory of type %s: an array or a pointer is needed"):format(name) end
  local is_const = element:find("^const ") ~= nil
  local found = ELEMENTS[(element:gsub("^const ", ""))]
  -- A pointer to an array or to a pointer is not a block of numbers.
  local is_array = rest:find("^%[") or rest:find("^%(&%)%[")
  if not found or not (is_array or rest == "*") then
    local needed = "FFI memory of type %s: float, double, int64_t, int32_t, uint8_t or int8_t is needed; row ids are int64_t"
    return needed:format(name)
  end
  return {dtype = found.dtype, size = found.size, is_array = is_array ~= nil, is_const = is_const}
end

--- Returns address, number of elements and dtype; or nil and the error.
-- @param count elements behind a pointer; the type of an array contains its number
function memory.look(cdata, count, writable)
  local ctype = ffi.typeof(cdata)
  local id = tonumber(ctype)
  local type = known[id]
  if not type then
    type = describe(ctype)
    known[id] = type
  end
  if not type.dtype then return nil, type end
  if writable and type.is_const then return nil, "constant FFI memory: results need writable memory" end
  if type.is_array then
    count = ffi.sizeof(cdata) / type.size
  elseif not count then
    return nil, "an FFI pointer without a length: pass {pointer = p, count = n}"
  end
  return tonumber(ffi.cast("intptr_t", ffi.cast("const void *", cdata))), count, type.dtype
end

-- The dimensions in the name of a C type, float [2][3], by ctype id; false: fewer than two.
local shapes = {}

--- The dimensions of an array of two or more of them; nil for other memory.
function memory.shape(cdata)
  local ctype = ffi.typeof(cdata)
  local id = tonumber(ctype)
  local shape = shapes[id]
  if shape == nil then
    shape = {}
    for length in tostring(ctype):gmatch("%[(%d+)%]") do shape[#shape + 1] = tonumber(length) end
    shape = #shape > 1 and shape or false
    shapes[id] = shape
  end
  return shape or nil
end

local int64, uint64 = ffi.typeof("int64_t"), ffi.typeof("uint64_t")
local LOW = int64(2 ^ 32 - 1)
local BEYOND = uint64(2 ^ 63)

--- The upper 32 bits, signed, and the lower 32 bits of an int64_t, or of a uint64_t that fits into one; otherwise nil.
function memory.halves(cdata)
  if ffi.istype(uint64, cdata) and cdata < BEYOND then cdata = int64(cdata) end
  if not ffi.istype(int64, cdata) then return nil end
  return tonumber(bit.arshift(cdata, 32)), tonumber(bit.band(cdata, LOW))
end

--- The int64_t of these two halves.
function memory.int64(high, low) return int64(high) * int64(2 ^ 32) + int64(low) end

return memory
