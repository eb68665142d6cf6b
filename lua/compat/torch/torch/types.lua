--- The element types, and the metatables of their tensors and storages. Internal.
--
-- All tensor types have the same methods, except those that only make sense for floats. The other files of this folder
-- add theirs to types.methods, and init.lua installs them when all are loaded.

local capi = require("polyverso.capi")
local strided = capi.strided()

local types = {
  strided = strided,
  fail = function(text, ...) return strided.fail(select("#", ...) > 0 and text:format(...) or text) end,
  methods = {},         -- of all tensors
  float_methods = {},   -- further methods of FloatTensor and DoubleTensor
  storage_methods = {},
  kinds = {},           -- by the tensor's name: {name, storage_name, dtype, is_integral, metatable, ctype}
  by_dtype = {},
}

local function add(name, dtype, ctype, is_integral)
  local kind = {
    name = ("torch.%sTensor"):format(name),
    storage_name = ("torch.%sStorage"):format(name),
    short = name,
    dtype = dtype,
    ctype = ctype,
    is_integral = is_integral,
  }
  kind.metatable = {__typename = kind.name, __kind = kind}
  kind.storage_metatable = {__typename = kind.storage_name, __kind = kind}
  types.kinds[kind.name] = kind
  types.by_dtype[dtype] = kind
  types[name:lower()] = kind
end

add("Byte", capi.MV_U8, "uint8_t *", true)
add("Int", capi.MV_I32, "int32_t *", true)
add("Long", capi.MV_I64, "int64_t *", true)
add("Float", capi.MV_F32, "float *", false)
add("Double", capi.MV_F64, "double *", false)

-- ------------------------------------------------------------------ the type of a value

--- The kind of a tensor, or nil.
function types.kind(value)
  if type(value) ~= "userdata" then return nil end
  local metatable = getmetatable(value)
  local kind = type(metatable) == "table" and rawget(metatable, "__kind")
  return kind and kind.metatable == metatable and kind or nil
end

--- The kind of a storage, or nil.
function types.storage_kind(value)
  if type(value) ~= "userdata" then return nil end
  local metatable = getmetatable(value)
  local kind = type(metatable) == "table" and rawget(metatable, "__kind")
  return kind and kind.storage_metatable == metatable and kind or nil
end

--- The name of a torch object's type, or nil for Lua's own types.
function types.typename(value)
  local metatable = getmetatable(value)
  return type(metatable) == "table" and rawget(metatable, "__typename") or nil
end

--- The type's name in error messages: DoubleTensor, LongStorage, number.
function types.describe(value)
  return (types.typename(value) or type(value)):gsub("^torch%.", "")
end

--- The kind of a tensor; anything else is an error.
function types.check(value, what)
  local kind = types.kind(value)
  if not kind then types.fail("%s: a Tensor is expected, got %s", what, types.describe(value)) end
  return kind
end

--- The kind of a FloatTensor or DoubleTensor; anything else is an error.
function types.check_float(what, value)
  local kind = types.check(value, what)
  if kind.is_integral then types.fail("%s: a FloatTensor or DoubleTensor is expected, got %s", what, types.describe(value)) end
  return kind
end

--- Raises an error unless all arguments are numbers.
function types.check_numbers(what, ...)
  for i = 1, select("#", ...) do
    local value = select(i, ...)
    if type(value) ~= "number" then
      types.fail("%s(): argument %d is a %s, not a number", what, i, types.describe(value))
    end
  end
end

-- ------------------------------------------------------------------ construction

--- The default kind of new tensors.
types.default = types.double

function types.kind_named(name)
  local kind = types.kinds[name]
  if not kind then
    types.fail("%s is not a tensor type; known: torch.ByteTensor, IntTensor, LongTensor, FloatTensor and DoubleTensor",
      tostring(name))
  end
  return kind
end

--- A tensor of zeros of these lengths; without lengths, one without dimensions.
function types.new(kind, sizes)
  local made = strided.tensor(kind.dtype)
  return sizes and strided.shape(made, nil, 1, sizes) or made
end

--- A tensor of the same type.
function types.like(tensor, sizes) return types.new(types.check(tensor, "the source"), sizes) end

--- A LongStorage of integers.
function types.long_storage(list)
  local made = strided.storage(types.long.dtype, #list)
  for i, value in ipairs(list) do made[i] = value end
  return made
end

--- The elements of a storage or a table, as a new table.
function types.list(source)
  if type(source) ~= "table" and not types.storage_kind(source) then
    types.fail("a LongStorage is expected, got %s", types.describe(source))
  end
  local list = {}
  for i = 1, #source do list[i] = source[i] end
  return list
end

--- Lengths in any of Torch's forms: numbers, a LongStorage, or a table. Returns a table.
function types.lengths(what, first, ...)
  local is_list = types.storage_kind(first) == types.long or type(first) == "table"
  local list = is_list and types.list(first) or {first, ...}
  for i = 1, is_list and #list or select("#", first, ...) do
    if type(list[i]) ~= "number" then
      types.fail("%s: lengths are numbers or a LongStorage, got %s", what, types.describe(list[i]))
    end
  end
  return list
end

-- ------------------------------------------------------------------ metatables

local function install(metatable, methods)
  for name, method in pairs(methods) do rawset(metatable, name, method) end
end

--- Installs the methods of all tensors and storages. index and newindex handle tensor[key] for other keys than numbers.
function types.install(index, newindex)
  for _, kind in pairs(types.kinds) do
    install(kind.metatable, types.methods)
    if not kind.is_integral then install(kind.metatable, types.float_methods) end
    install(kind.storage_metatable, types.storage_methods)
    strided.types(kind.dtype, kind.metatable, kind.storage_metatable, index, newindex)
  end
end

return types
