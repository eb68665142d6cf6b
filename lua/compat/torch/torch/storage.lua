--- Storages: contiguous memory for numbers, on which tensors are views. Internal.

local types = require("torch.types")
local strided, fail = types.strided, types.fail

local storage = {}
local methods = types.storage_methods

--- Makes a storage of a kind with `size` numbers, or with the numbers of a table.
function storage.construct(kind, size, ...)
  if select("#", ...) > 0 then fail("%s(size) or %s(table) is expected", kind.storage_name, kind.storage_name) end
  if size == nil then return strided.storage(kind.dtype, 0) end
  if type(size) == "number" then return strided.storage(kind.dtype, size) end
  if type(size) ~= "table" then
    fail("%s: a size or a table is expected, got %s", kind.storage_name, types.describe(size))
  end
  local made = strided.storage(kind.dtype, #size)
  for i, value in ipairs(size) do
    if type(value) ~= "number" then fail("%s: element %d is a %s", kind.storage_name, i, type(value)) end
    made[i] = value
  end
  return made
end

-- The whole storage as a tensor.
local function whole(self)
  local kind = types.storage_kind(self)
  return strided.shape(strided.tensor(kind.dtype), self, 1, {#self})
end

function methods:size() return strided.count(self) end
function methods:resize(size) return strided.resize(self, size) end
function methods:totable() return types.list(self) end

function methods:fill(value)
  strided.fill(whole(self), value)
  return self
end

function methods:copy(source)
  if not types.storage_kind(source) then fail("copy(): a Storage is expected, got %s", types.describe(source)) end
  if #source ~= #self then fail("copy(): storages have different sizes: %d and %d elements", #self, #source) end
  strided.copy(whole(self), whole(source))
  return self
end

function methods:type(name)
  if not name then return types.typename(self) end
  for _, kind in pairs(types.kinds) do
    if kind.storage_name == name then
      if kind == types.storage_kind(self) then return self end
      return strided.storage(kind.dtype, #self):copy(self)
    end
  end
  fail("%s is not a storage type", tostring(name))
end

for _, kind in pairs(types.kinds) do
  methods[kind.short:lower()] = function(self) return self:type(kind.storage_name) end
end

function methods:elementSize() return ({Byte = 1, Int = 4, Float = 4})[types.storage_kind(self).short] or 8 end
function methods.__eq(a, b) return strided.same(a, b) end

function methods:data() return storage.pointer(types.storage_kind(self), self) end

--- LuaJIT: a pointer to the first element.
function storage.pointer(kind, holder)
  if not jit then fail("data() needs LuaJIT: its pointers are FFI values") end
  local ffi = require("ffi")
  return ffi.cast(kind.ctype, ffi.cast("intptr_t", strided.address(holder)))
end

for _, kind in pairs(types.kinds) do
  kind.storage_metatable.new = function(...) return storage.construct(kind, ...) end
end

return storage
