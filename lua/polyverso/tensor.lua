--- Tensors: arrays of numbers in shared memory, for scripts and for tables.
--
--     local tensor = require("polyverso.tensor")
--     local weights = tensor.normal({10, 64}, 1)      -- shape, seed
--     weights:mul_(0.1)
--     table:add(weights)            -- to a server on the same host, the bytes are sent without a copy
--     print(weights:sum(0))         -- along the rows
--
-- Positions and axes count from 0, like row ids and FFI memory. Operators make new tensors; add_, sub_, mul_, div_ and
-- pow_ work in place. Python and Perl use the same names. In LuaJIT, pointer() gives the memory.
--
-- The last argument of a constructor is where the tensor is made: nil or "cpu" for shared memory, or "cuda:0".

local capi = require("polyverso.capi")
local foreign = require("polyverso.foreign")
local place = require("polyverso.values").place

local Tensor = {}

local CODES = {
  f32 = capi.MV_F32, f64 = capi.MV_F64, i64 = capi.MV_I64, i32 = capi.MV_I32, u8 = capi.MV_U8,
  i8 = capi.MV_I8, f16 = capi.MV_F16, bf16 = capi.MV_BF16,
}
local NAMES = {}
for name, code in pairs(CODES) do NAMES[code] = name end
local CTYPES = {f32 = "float *", f64 = "double *", i64 = "int64_t *", i32 = "int32_t *", u8 = "uint8_t *",
  i8 = "int8_t *", f16 = "uint16_t *", bf16 = "uint16_t *"}

local function code(dtype)
  local known = CODES[dtype or "f32"]
  if dtype ~= nil and type(dtype) ~= "string" then
    local example = 'the dtype is a text such as "f64", not a %s: tensor.zeros({2, 3}, "f64"), tensor.full({2, 3}, 0.5, "f64")'
    capi.raise(capi.MV_EINVAL, example:format(type(dtype)))
  end
  if not known then
    capi.raise(capi.MV_EINVAL, ('a tensor holds f32, f64, i64, i32, u8, i8, f16 or bf16, not "%s"'):format(tostring(dtype)))
  end
  return known
end

-- The object is a table, and Lua 5.1 has no finalizers for tables: the owner in it frees the handle.
local function new(handle)
  return setmetatable({mv_tensor = handle, owner = capi.tensor_owner(handle)}, Tensor)
end

-- new(call(...)). Tensors that are unreachable but not collected yet may hold all of a device's memory.
local function make(call, ...)
  local made, handle = pcall(call, ...)
  if made then return new(handle) end
  if type(handle) ~= "table" or handle.code ~= capi.MV_ENOMEM then error(handle, 0) end
  collectgarbage()
  return new(call(...))
end

local function is_tensor(value) return getmetatable(value) == Tensor end

-- An operand as a tensor; numbers are copied into one, on the device of `like`.
local function operand(value, dtype, like)
  if is_tensor(value) then return value end
  local made = Tensor.copy_of(value, dtype)
  local number = like and capi.mv_tensor_describe(like).device or capi.MV_HOST
  return number == capi.MV_HOST and made or made:to(number)
end

-- ------------------------------------------------------------------ creation

--- A tensor of zeros.
---@param shape polyverso.shape
---@param dtype? polyverso.dtype default "f32"
---@param device? string "cuda:0"; default "cpu"
---@return polyverso.Tensor
function Tensor.zeros(shape, dtype, device)
  if device == nil then return make(capi.mv_tensor_create, code(dtype), shape) end
  return make(capi.mv_tensor_create_on, place(device), code(dtype), shape)
end

--- A tensor whose elements are all `value`.
---@param shape polyverso.shape
---@param value number
---@param dtype? polyverso.dtype default "f32"
---@param device? string "cuda:0"; default "cpu"
---@return polyverso.Tensor
function Tensor.full(shape, value, dtype, device) return Tensor.zeros(shape, dtype, device):fill(value) end

--- A tensor of ones.
---@param shape polyverso.shape
---@param dtype? polyverso.dtype default "f32"
---@param device? string "cuda:0"; default "cpu"
---@return polyverso.Tensor
function Tensor.ones(shape, dtype, device) return Tensor.full(shape, 1, dtype, device) end

--- `count` numbers: start, start + step, ...
---@param count integer
---@param start? number default 0
---@param step? number default 1
---@param dtype? polyverso.dtype default "f32"
---@param device? string "cuda:0"; default "cpu"
---@return polyverso.Tensor
function Tensor.range(count, start, step, dtype, device)
  local made = Tensor.zeros(count, dtype, device)
  capi.mv_tensor_range(made, start or 0, step or 1)
  return made
end

local function check_seed(call, seed, last)
  if type(seed) == "number" then return end
  local given = seed == nil and "nil" or "a " .. type(seed)
  capi.raise(capi.MV_EINVAL, ("%s: the seed must be an integer, not %s: %s(shape, seed, %s, dtype)"):format(call, given, call, last))
end

--- Random numbers; a seed gives the same ones on every machine and in every language.
---@param shape polyverso.shape
---@param seed integer
---@param low? number default 0
---@param high? number default 1
---@param dtype? polyverso.dtype default "f32"
---@param device? string "cuda:0"; default "cpu"
---@return polyverso.Tensor
function Tensor.uniform(shape, seed, low, high, dtype, device)
  check_seed("tensor.uniform", seed, "low, high")
  local made = Tensor.zeros(shape, dtype, device)
  capi.mv_tensor_uniform(made, seed, low or 0, high or 1)
  return made
end

--- Normally distributed random numbers, with a seed as for uniform().
---@param shape polyverso.shape
---@param seed integer
---@param mean? number default 0
---@param deviation? number default 1
---@param dtype? polyverso.dtype default "f32"
---@param device? string "cuda:0"; default "cpu"
---@return polyverso.Tensor
function Tensor.normal(shape, seed, mean, deviation, dtype, device)
  check_seed("tensor.normal", seed, "mean, deviation")
  local made = Tensor.zeros(shape, dtype, device)
  capi.mv_tensor_normal(made, seed, mean or 0, deviation or 1)
  return made
end

-- Collects the lengths of nested tables in `shape`, and their numbers in `flat`.
local function lay_out(list, level, shape, flat)
  local length = shape[level] or #list
  shape[level] = length
  if #list ~= length then capi.raise(capi.MV_ESHAPE, ("rows have different lengths: %d and %d values"):format(length, #list)) end
  for _, value in ipairs(list) do
    if type(value) == "table" then lay_out(value, level + 1, shape, flat) else flat[#flat + 1] = value end
  end
end

--- A copy of a number, of nested tables of numbers, of FFI memory, or of a tensor, of this module or Torch's.
---@param data polyverso.Values
---@param dtype? polyverso.dtype default: that of FFI memory or of a tensor; "f32" for numbers
---@param device? string "cuda:0"; default: that of a tensor, else "cpu"
---@return polyverso.Tensor
function Tensor.copy_of(data, dtype, device)
  if device ~= nil then return Tensor.copy_of(data, dtype):to(device) end
  if is_tensor(data) then return dtype and data:cast(dtype) or data:copy() end
  if foreign.is_tensor(data) then return Tensor.copy_of(require("polyverso.arrays").one(data), dtype) end
  local shape, flat, kind = {}, {}, type(data)
  if kind ~= "number" and kind ~= "table" and kind ~= "cdata" then
    local given = data == nil and "nil" or "a " .. kind
    capi.raise(capi.MV_EDTYPE, ("a tensor, a number, lists of numbers or FFI memory are needed, not %s"):format(given))
  end
  if kind == "number" then
    flat[1] = data
  elseif kind == "table" and not data.pointer then
    lay_out(data, 1, shape, flat)
  else
    local view = Tensor.view(data)
    return view:cast(dtype or view:dtype())
  end
  local exact = (dtype == "f16" or dtype == "bf16") and "f64" or dtype
  flat.dtype = code(exact)
  local made = make(capi.mv_tensor_from, flat, shape)
  return exact == dtype and made or made:cast(dtype)
end

--- A tensor on FFI memory, without a copy: an array or {pointer = cdata, count = n}; or on the memory of a contiguous
--- tensor of Torch. The tensor keeps the memory alive.
---@param memory polyverso.Array
---@param shape? polyverso.shape nil = one dimension; a Torch tensor's own
---@return polyverso.Tensor
function Tensor.view(memory, shape)
  if foreign.is_tensor(memory) then
    if not memory:isContiguous() then
      capi.raise(capi.MV_EINVAL, "tensor.view: this Torch tensor has gaps: use tensor.copy_of, or its contiguous()")
    end
    local made = require("polyverso.arrays").one(memory)
    return shape and made:reshape(shape) or made
  end
  if not shape then
    local count = type(memory) == "table" and memory.count
    if not count then
      local _, found = require("polyverso.memory").look(memory, nil, true)
      count = found
    end
    shape = {count}
  end
  return new(capi.mv_tensor_view(memory, shape))
end

--- A row-sparse tensor: copies of the values' rows at these ids; repeated ids are summed.
---@param rows integer[]|polyverso.Tensor row ids, one for each row of the values
---@param values polyverso.Values of shape {ids, ...}
---@param height integer rows of the whole tensor
---@return polyverso.Tensor
function Tensor.sparse(rows, values, height) return make(capi.mv_tensor_sparse, rows, operand(values), height) end

-- ------------------------------------------------------------------ properties

---@class polyverso.Tensor
---@field add_ fun(self: polyverso.Tensor, other: polyverso.Tensor|number): polyverso.Tensor in place
---@field sub_ fun(self: polyverso.Tensor, other: polyverso.Tensor|number): polyverso.Tensor in place
---@field mul_ fun(self: polyverso.Tensor, other: polyverso.Tensor|number): polyverso.Tensor in place
---@field div_ fun(self: polyverso.Tensor, other: polyverso.Tensor|number): polyverso.Tensor in place
---@field pow_ fun(self: polyverso.Tensor, other: polyverso.Tensor|number): polyverso.Tensor in place
---@field eq fun(self: polyverso.Tensor, other: polyverso.Tensor|number): polyverso.Tensor of 0 and 1
---@field ne fun(self: polyverso.Tensor, other: polyverso.Tensor|number): polyverso.Tensor of 0 and 1
---@field lt fun(self: polyverso.Tensor, other: polyverso.Tensor|number): polyverso.Tensor of 0 and 1
---@field le fun(self: polyverso.Tensor, other: polyverso.Tensor|number): polyverso.Tensor of 0 and 1
---@field gt fun(self: polyverso.Tensor, other: polyverso.Tensor|number): polyverso.Tensor of 0 and 1
---@field ge fun(self: polyverso.Tensor, other: polyverso.Tensor|number): polyverso.Tensor of 0 and 1
---@field neg fun(self: polyverso.Tensor): polyverso.Tensor
---@field abs fun(self: polyverso.Tensor): polyverso.Tensor
---@field sqrt fun(self: polyverso.Tensor): polyverso.Tensor
---@field exp fun(self: polyverso.Tensor): polyverso.Tensor
---@field log fun(self: polyverso.Tensor): polyverso.Tensor
---@field sum fun(self: polyverso.Tensor, axis?: integer): polyverso.Tensor along an axis; nil: all elements
---@field mean fun(self: polyverso.Tensor, axis?: integer): polyverso.Tensor
---@field min fun(self: polyverso.Tensor, axis?: integer): polyverso.Tensor
---@field max fun(self: polyverso.Tensor, axis?: integer): polyverso.Tensor
---@field argmin fun(self: polyverso.Tensor, axis?: integer): polyverso.Tensor of i64 positions
---@field argmax fun(self: polyverso.Tensor, axis?: integer): polyverso.Tensor of i64 positions
---@field norm fun(self: polyverso.Tensor, axis?: integer): polyverso.Tensor the square root of the sum of squares
---@operator add(polyverso.Tensor|number): polyverso.Tensor
---@operator sub(polyverso.Tensor|number): polyverso.Tensor
---@operator mul(polyverso.Tensor|number): polyverso.Tensor
---@operator div(polyverso.Tensor|number): polyverso.Tensor
---@operator pow(polyverso.Tensor|number): polyverso.Tensor
---@operator unm: polyverso.Tensor
local methods = {}

--- The fields of mv_tensor_info.
---@return table
function methods:info() return capi.mv_tensor_describe(self) end
--- The lengths, outermost first.
---@return integer[]
function methods:shape() return self:info().shape end
--- The name of the dtype.
---@return polyverso.dtype
function methods:dtype() return NAMES[self:info().dtype] end
--- The number of dimensions.
---@return integer
function methods:dims() return #self:shape() end
--- The number of elements.
---@return integer
function methods:count() return self:info().count end
--- Whether the tensor stores only some of its rows.
---@return boolean
function methods:row_sparse() return self:info().row_sparse == 1 end
--- Where the elements are: "cpu" or "cuda:0".
---@return string
function methods:device()
  local number = self:info().device
  return number == capi.MV_HOST and "cpu" or ("cuda:%d"):format(number)
end
--- The mv_tensor for the C functions.
---@return integer
function methods:handle() return self.mv_tensor end

--- LuaJIT: a pointer to the elements, and their number. The memory lives as long as a tensor on it: keep one.
---@return ffi.cdata* pointer
---@return integer count
function methods:pointer()
  local ffi = require("ffi")
  local address, count, dtype = capi.mv_tensor_data(self)
  return ffi.cast(CTYPES[NAMES[dtype]], ffi.cast("intptr_t", address)), count
end

--- One element, at the positions of all dimensions: get(i, j).
---@param ... integer positions from 0
---@return number
function methods:get(...)
  local value, integer = capi.mv_tensor_get(self, {...})
  return self:dtype():find("f") and value or integer
end

--- set(i, j, value)
---@param ... number positions from 0, then the value
function methods:set(...)
  local index = {...}
  local value = table.remove(index)
  capi.mv_tensor_set(self, index, value)
end

--- The only element.
---@return number
function methods:item() return self:reshape({}):get() end

--- Nested tables of numbers; a number if there are no dimensions.
---@return number|table
function methods:to_list()
  if self:info().device ~= capi.MV_HOST then return self:to("cpu"):to_list() end -- one copy for all elements
  local shape = self:shape()
  if #shape == 0 then return self:get() end
  local list = {}
  for i = 1, shape[1] do
    if #shape == 1 then list[i] = self:get(i - 1) else list[i] = self:row(i - 1):to_list() end
  end
  return list
end

-- ------------------------------------------------------------------ views and copies

--- A view of one row, without its first dimension.
---@param row integer
---@return polyverso.Tensor
function methods:row(row) return new(capi.mv_tensor_row(self, row)) end
--- Rows first .. last - 1.
---@param first integer
---@param last? integer nil: to the end
---@return polyverso.Tensor view
function methods:slice(first, last) return new(capi.mv_tensor_slice(self, first, last)) end
--- A view of the same elements in another shape.
---@param shape polyverso.shape
---@return polyverso.Tensor
function methods:reshape(shape) return new(capi.mv_tensor_reshape(self, shape)) end
--- A copy of these rows, in this order.
---@param rows integer[]|polyverso.Tensor
---@return polyverso.Tensor
function methods:take(rows) return make(capi.mv_tensor_take, self, rows) end
--- A copy.
---@return polyverso.Tensor
function methods:copy() return make(capi.mv_tensor_copy, self, nil) end
--- A copy on a device, "cuda:1", or on the "cpu".
---@param device string
---@return polyverso.Tensor
function methods:to(device) return make(capi.mv_tensor_to, self, place(device)) end
--- A copy in another dtype, rounded to it.
---@param dtype polyverso.dtype
---@return polyverso.Tensor
function methods:cast(dtype) return make(capi.mv_tensor_cast, self, code(dtype)) end
--- A copy of a matrix with rows and columns exchanged.
---@return polyverso.Tensor
function methods:transpose() return make(capi.mv_tensor_transpose, self) end
--- A copy of a row-sparse tensor with all rows.
---@return polyverso.Tensor
function methods:to_dense() return make(capi.mv_tensor_to_dense, self) end
--- A row-sparse copy: the rows that are not all zeros.
---@return polyverso.Tensor
function methods:to_sparse() return make(capi.mv_tensor_to_sparse, self) end

--- A row-sparse tensor's ids and rows, as views.
---@return polyverso.Tensor ids
---@return polyverso.Tensor rows
function methods:parts()
  local ids, held = capi.mv_tensor_parts(self)
  return new(ids), new(held)
end

--- Copies other values of the same shape into this tensor.
---@param other polyverso.Values
---@return polyverso.Tensor self
function methods:assign(other)
  capi.mv_tensor_copy(operand(other), self)
  return self
end

--- Sets all elements.
---@param value number
---@return polyverso.Tensor self
function methods:fill(value)
  capi.mv_tensor_fill(self, value)
  return self
end

-- ------------------------------------------------------------------ arithmetic

-- The result is put into `out`, the call's last argument, if that is given.
local function into(out, call, ...)
  if out == nil then return make(call, ...) end
  call(...)
  return out
end

local function binary(op, a, b, out)
  if type(b) == "number" then return into(out, capi.mv_tensor_scalar, op, a, b, 0, out) end
  if type(a) == "number" then return into(out, capi.mv_tensor_scalar, op, b, a, 1, out) end
  return into(out, capi.mv_tensor_binary, op, operand(a, nil, is_tensor(b) and b), operand(b, nil, is_tensor(a) and a), out)
end

for name, op in pairs{add = "ADD", sub = "SUB", mul = "MUL", div = "DIV", pow = "POW"} do
  local number = capi["MV_" .. op]
  Tensor["__" .. name] = function(a, b) return binary(number, a, b) end
  methods[name .. "_"] = function(self, other) return binary(number, self, other, self) end
end
-- Methods, because Lua's comparison operators always return a boolean.
for _, name in ipairs{"eq", "ne", "lt", "le", "gt", "ge"} do
  local number = capi["MV_" .. name:upper()]
  methods[name] = function(self, other) return binary(number, self, other) end
end
--- The smaller of each two elements, in a new tensor.
---@param other polyverso.Tensor|number
---@return polyverso.Tensor
function methods:minimum(other) return binary(capi.MV_MIN, self, other) end
--- The greater of each two elements, in a new tensor.
---@param other polyverso.Tensor|number
---@return polyverso.Tensor
function methods:maximum(other) return binary(capi.MV_MAX, self, other) end

for _, name in ipairs{"neg", "abs", "sqrt", "exp", "log"} do
  local number = capi["MV_" .. name:upper()]
  methods[name] = function(self) return make(capi.mv_tensor_unary, number, self, nil) end
end
Tensor.__unm = methods.neg

--- self += alpha * other, in place; other may be row-sparse.
---@param alpha number
---@param other polyverso.Values
---@return polyverso.Tensor self
function methods:axpy(alpha, other)
  capi.mv_tensor_axpy(alpha, operand(other, nil, self), self)
  return self
end

for name, op in pairs{sum = "SUM", mean = "MEAN", min = "LEAST", max = "GREATEST", argmin = "ARGMIN", argmax = "ARGMAX",
                      norm = "NORM"} do
  local number = capi["MV_" .. op]
  methods[name] = function(self, axis)
    return make(capi.mv_tensor_reduce, number, self, axis or capi.MV_ALL_AXES)
  end
end

--- The sum of the products of elements.
---@param other polyverso.Values
---@return number
function methods:dot(other) return capi.mv_tensor_dot(self, operand(other, nil, self)) end

--- Whether the shapes are equal and |self - other| <= absolute + relative * |other| for all elements.
---@param other polyverso.Values
---@param relative? number default 1e-5
---@param absolute? number default 1e-8
---@return boolean
function methods:close(other, relative, absolute)
  return capi.mv_tensor_close(self, operand(other), relative or 1e-5, absolute or 1e-8) == 1
end

--- Whether shapes and elements are equal.
---@param other polyverso.Values
---@return boolean
function methods:equal(other) return self:close(other, 0, 0) end

--- The matrix product. how: {transpose_a = true, transpose_b = true}
---@param other polyverso.Values a matrix
---@param how? {transpose_a: boolean?, transpose_b: boolean?}
---@return polyverso.Tensor
function methods:matmul(other, how)
  how = how or {}
  local flags = (how.transpose_a and capi.MV_TRANSPOSE_A or 0) + (how.transpose_b and capi.MV_TRANSPOSE_B or 0)
  return make(capi.mv_tensor_matmul, self, operand(other, nil, self), flags, nil)
end

--- Frees the tensor now, before garbage collection.
function methods:free()
  self.owner:free()
  self.mv_tensor = 0
end

local function refuse_call(name, self)
  if is_tensor(self) then capi.raise(capi.MV_EHANDLE, ("tensor:%s() after free()"):format(name)) end
  local given = self == nil and "nothing" or "a " .. type(self)
  local message = "tensor:%s() was called on %s: methods are called with a colon, tensor:%s(...), not tensor.%s(...)"
  capi.raise(capi.MV_EINVAL, message:format(name, given, name, name))
end

-- Each method checks its object. ipc's tables of numbers and handles of their own pass as tensors, too.
local function checked(name, method)
  return function(self, ...)
    local handle = type(self) == "table" and self.mv_tensor
    if not handle or handle == 0 and name ~= "free" then refuse_call(name, self) end
    return method(self, ...)
  end
end
for name, method in pairs(methods) do methods[name] = checked(name, method) end

-- ------------------------------------------------------------------ metamethods

function Tensor.__index(self, key)
  if type(key) ~= "number" then return methods[key] end
  return self:dims() == 1 and self:get(key) or self:row(key)
end

function Tensor.__newindex(self, key, value)
  if type(key) ~= "number" then return rawset(self, key, value) end
  if self:dims() == 1 then return self:set(key, value) end
  local part = self:row(key)
  if type(value) == "number" then part:fill(value) else part:assign(value) end
end

function Tensor.__tostring(self)
  return self.mv_tensor == 0 and "<polyverso.Tensor after free()>" or capi.mv_tensor_text(self)
end
function Tensor.__len(self) return self:shape()[1] end

return {
  zeros = Tensor.zeros, full = Tensor.full, ones = Tensor.ones, range = Tensor.range, uniform = Tensor.uniform, normal = Tensor.normal,
  copy_of = Tensor.copy_of, view = Tensor.view, sparse = Tensor.sparse,
  --- Whether a value is a tensor of this module.
  ---@type fun(value: any): boolean
  is_tensor = is_tensor,
  methods = methods,
  --- A tensor that owns a handle of the C API, and frees it.
  ---@type fun(handle: integer): polyverso.Tensor
  adopt = new,
  --- The name of an mv_dtype.
  ---@type fun(dtype: integer): polyverso.dtype
  name_of = function(dtype) return NAMES[dtype] end,
}
