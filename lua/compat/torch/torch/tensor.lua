--- Tensors: constructors, properties, conversions and memory. Internal.

local types = require("torch.types")
local storages = require("torch.storage")
local strided, fail = types.strided, types.fail

local tensor = {}
local methods = types.methods

-- ------------------------------------------------------------------ constructors

-- Collects the lengths of nested tables, and their numbers in order.
local function lay_out(list, level, sizes, flat)
  local length = sizes[level] or #list
  sizes[level] = length
  if #list ~= length then fail("invalid tensor definition: rows have different lengths: %d and %d values", length, #list) end
  for _, value in ipairs(list) do
    local is_row = type(value) == "table"
    if sizes.deepest and is_row == (level == sizes.deepest) then
      fail("invalid tensor definition: numbers and rows are mixed")
    elseif is_row then
      lay_out(value, level + 1, sizes, flat)
    elseif type(value) == "number" then
      sizes.deepest = level
      flat[#flat + 1] = value
    else
      fail("invalid tensor definition: an element is a %s", types.describe(value))
    end
  end
end

local function from_table(kind, list)
  local sizes, flat = {}, {}
  lay_out(list, 1, sizes, flat)
  sizes.deepest = nil
  if #flat == 0 then return types.new(kind) end
  return strided.shape(strided.tensor(kind.dtype), storages.construct(kind, flat), 1, sizes)
end

-- Makes a view of a storage from (storage, offset, size 1, stride 1, size 2, stride 2, ...),
-- (storage, offset, sizes, strides) or (storage).
local function upon_storage(made, storage, offset, first, ...)
  if not types.storage_kind(storage) then fail("a Storage is expected, got %s", types.describe(storage)) end
  types.check_numbers("storage offset", offset or 1)
  if first == nil then
    return strided.shape(made, storage, offset or 1, {#storage - (offset or 1) + 1})
  elseif type(first) ~= "number" then
    local strides = ...
    return strided.shape(made, storage, offset, types.lengths("sizes", first), strides and types.list(strides))
  end
  local sizes, strides, given = {}, {}, {first, ...}
  for i = 1, #given, 2 do
    sizes[#sizes + 1] = given[i]
    strides[#strides + 1] = given[i + 1] or -1
  end
  if strides[#strides] ~= -1 then return strided.shape(made, storage, offset, sizes, strides) end
  strides[#strides] = nil -- the last stride may be missing
  strides[#strides + 1] = 1
  return strided.shape(made, storage, offset, sizes, strides)
end

-- Makes a tensor with the source's memory, offset, sizes and strides.
local function alias(made, source)
  local sizes, strides, offset = strided.sizes(source)
  return strided.shape(made, strided.storage_of(source), offset, sizes, strides)
end

--- Makes a tensor of a kind from the arguments of Torch's constructors.
function tensor.construct(kind, first, ...)
  local made = strided.tensor(kind.dtype)
  if first == nil then return made end
  if type(first) == "table" then return from_table(kind, first) end
  if types.kind(first) then
    if types.kind(first) ~= kind then fail("%s(%s): use type() to convert", kind.name, types.describe(first)) end
    return alias(made, first)
  end
  if types.storage_kind(first) == kind then return upon_storage(made, first, ...) end
  if types.storage_kind(first) == types.long then
    local strides = ...
    return strided.shape(made, nil, 1, types.list(first), strides and types.list(strides))
  end
  return strided.shape(made, nil, 1, types.lengths(kind.name, first, ...))
end

for _, kind in pairs(types.kinds) do
  kind.metatable.new = function(...) return tensor.construct(kind, ...) end
end

-- ------------------------------------------------------------------ properties

methods.dim = strided.dim
methods.nDimension = strided.dim
methods.nElement = strided.elements
methods.numel = strided.elements
methods.isContiguous = strided.contiguous
methods.storage = strided.storage_of

function methods:size(dimension)
  if dimension then return strided.size(self, dimension) end
  return types.long_storage((strided.sizes(self)))
end
function methods.__len(self) return types.long_storage((strided.sizes(self))) end

function methods:stride(dimension)
  if dimension then return strided.stride(self, dimension) end
  local _, strides = strided.sizes(self)
  return types.long_storage(strides)
end

function methods:storageOffset()
  local _, _, offset = strided.sizes(self)
  return offset
end

local function same_list(a, b)
  if #a ~= #b then return false end
  for i = 1, #a do
    if a[i] ~= b[i] then return false end
  end
  return true
end

function methods:isSameSizeAs(other) return same_list((strided.sizes(self)), (strided.sizes(other))) end
function methods:isSize(sizes) return same_list((strided.sizes(self)), types.list(sizes)) end

--- Whether both are the same view of the same memory.
function methods:isSetTo(other)
  local sizes, strides, offset = strided.sizes(self)
  local other_sizes, other_strides, other_offset = strided.sizes(other)
  return #sizes > 0 and strided.same(self, other) and offset == other_offset and same_list(sizes, other_sizes)
    and same_list(strides, other_strides)
end

function methods:elementSize() return ({Byte = 1, Int = 4, Float = 4})[types.kind(self).short] or 8 end

--- LuaJIT: a pointer to the first element. It is valid while the storage exists and is not resized.
function methods:data() return storages.pointer(types.check(self, "data()"), self) end

--- The elements as a one-dimensional polyverso.tensor on the same memory. It must be contiguous. Torch lacks this.
function methods:polyverso() return require("polyverso.tensor").adopt(strided.handle(self)) end

-- ------------------------------------------------------------------ other types

function methods:type(name)
  local kind = types.check(self, "type()")
  if name == nil or name == kind.name then return name == nil and kind.name or self end
  local made = types.new(types.kind_named(name), (strided.sizes(self)))
  return strided.copy(made, self)
end

function methods:typeAs(other) return self:type(types.check(other, "typeAs()").name) end
function methods:real() return self:type(types.default.name) end
for _, kind in pairs(types.kinds) do
  methods[kind.short:lower()] = function(self) return self:type(kind.name) end
end

-- ------------------------------------------------------------------ memory

methods.copy = strided.copy
methods.fill = strided.fill
function methods:zero() return strided.fill(self, 0) end

function methods:clone() return strided.copy(types.like(self, (strided.sizes(self))), self) end
function methods:contiguous() return strided.contiguous(self) and self or self:clone() end

function methods:set(source, ...)
  if source == nil then return strided.shape(self, strided.storage(types.kind(self).dtype, 0), 1, {}) end
  if types.kind(source) then return alias(self, source) end
  return upon_storage(self, source, ...)
end

function methods:resize(first, ...)
  local strides = types.storage_kind(first) and (...)
  return strided.shape(self, nil, nil, types.lengths("resize()", first, ...), strides and types.list(strides) or nil)
end

function methods:resizeAs(other) return tensor.resize_as(self, other) end

--- Gives a tensor the lengths of another; if it has them already, its strides stay.
function tensor.resize_as(self, other)
  local sizes = strided.sizes(other)
  if same_list(sizes, (strided.sizes(self))) then return self end
  return strided.shape(self, nil, nil, sizes)
end

function methods:apply(change) return strided.apply(change, self) end
function methods:map(other, change) return strided.apply(change, self, other) end
function methods:map2(first, second, change) return strided.apply(change, self, first, second) end

return tensor
