--- Converts Torch's tensors and storages in ipc's messages to plain tables, and back. Internal.
--
-- Between threads of a process both sides share the memory of the stand-in's tensors; tensors of an installed Torch are
-- copied. Data from another process may be anything: it is checked before anything is made of it.

local capi = require("polyverso.capi")
local foreign = require("polyverso.foreign")
local native = require("polyverso.ipc")

local values = {}

local SIZES = {Byte = 1, Char = 1, Short = 2, Int = 4, Long = 8, Float = 4, Double = 8}
local MOST_DIMS = 8

local function fail(...) error(string.format(...), 0) end

-- ------------------------------------------------------------------ the stand-in's tensors

local own = {}

local function strided() return require("torch.types").strided end

local function whole(storage)
  local types = require("torch.types")
  return strided().shape(strided().tensor(types.storage_kind(storage).dtype), storage, 1, {#storage})
end

function own.share(storage) return #storage > 0 and native.lent(strided().handle(whole(storage))) or nil end

function own.bytes(storage) return strided().bytes(storage) end

-- A storage that holds exactly the elements of the tensor.
function own.elements(tensor)
  local storage = tensor:storage()
  if tensor:isContiguous() and tensor:nElement() == #storage then return storage end
  return tensor:clone():storage()
end

function own.storage(name, bytes, count)
  return strided().set_bytes(strided().storage(require("torch.types").kind_named(name).dtype, count), bytes)
end

function own.borrowed(memory) return strided().borrow(memory:handle()) end

function own.tensor(name, storage, sizes, strides, offset)
  local made = strided().tensor(require("torch.types").kind_named(name).dtype)
  return strided().shape(made, storage, offset or 1, sizes, strides)
end

-- ------------------------------------------------------------------ the tensors of an installed Torch

local installed = {}

function installed.share() end

function installed.bytes(storage)
  local ffi = require("ffi")
  local size = #storage > 0 and SIZES[(torch.typename(storage):match("(%a+)Storage"))] or 0
  return ffi.string(ffi.cast("const char *", storage:data()), #storage * size)
end

function installed.elements(tensor) return tensor:clone():storage() end

function installed.storage(name, bytes, count)
  local storage = torch[name:match("%.(%a+)Tensor") .. "Storage"](count)
  require("ffi").copy(storage:data(), bytes, #bytes)
  return storage
end

function installed.tensor(name, storage, sizes)
  return torch[name:match("%.(%a+)$")](storage, 1, torch.LongStorage(sizes))
end

local function library()
  local found = foreign.torch()
  if not found then
    local loaded
    loaded, found = pcall(require, "torch")
    if not loaded then fail("the message has a tensor, but torch is not available: %s", tostring(found)) end
  end
  return package.loaded["torch.types"] and own or installed
end

-- ------------------------------------------------------------------ packing

local function list(lengths)
  local copied = {}
  for i = 1, #lengths do copied[i] = lengths[i] end
  return copied
end

--- A table that describes a tensor or storage; nil for other userdata.
function values.pack(value, in_process)
  local torch = foreign.torch()
  if not torch then return nil end
  if torch.isStorage(value) then
    local name, with = torch.typename(value), library()
    local memory = in_process and with.share(value)
    return {storage = name, memory = memory or nil, bytes = not memory and with.bytes(value) or nil}
  end
  if not torch.isTensor(value) then return nil end
  local packed, with = {tensor = torch.typename(value)}, library()
  if value:nElement() == 0 then return packed end
  packed.sizes = list(value:size())
  local memory = in_process and with.share(value:storage())
  if memory then
    packed.memory, packed.strides, packed.offset = memory, list(value:stride()), value:storageOffset()
  else
    packed.bytes = with.bytes(with.elements(value))
  end
  return packed
end

-- ------------------------------------------------------------------ unpacking

-- The number of elements for these lengths, which must be whole numbers that are not negative.
local function count_of(sizes)
  if type(sizes) ~= "table" or #sizes > MOST_DIMS then fail("invalid message: a tensor without sizes") end
  local count = #sizes > 0 and 1 or 0
  for _, length in ipairs(sizes) do
    if type(length) ~= "number" or length < 0 or length % 1 ~= 0 then fail("invalid message: a tensor without sizes") end
    count = count * length
  end
  return count
end

local function storage_of(packed, name, count)
  local with = library()
  if packed.memory then return with.borrowed(packed.memory) end
  local size = SIZES[name:match("^torch%.(%a+)Tensor$") or ""]
  local bytes = packed.bytes
  if not size then fail("invalid message: a tensor of the unknown type %s", name) end
  if type(bytes) ~= "string" then fail("invalid message: a tensor without elements") end
  count = count or #bytes / size
  if count * size ~= #bytes then fail("invalid message: a tensor of %.0f elements in %d bytes", count, #bytes) end
  return with.storage(name, bytes, count)
end

local function same_sizes(a, b)
  if #a ~= #b then return false end
  for i = 1, #a do
    if a[i] ~= b[i] then return false end
  end
  return true
end

local function by_name(sizes) return #sizes > 0 and table.concat(sizes, "x") or "no elements" end

local function unpack_tensor(packed, into)
  local name, sizes = packed.tensor, packed.sizes or {}
  if type(name) ~= "string" then fail("invalid message: a tensor without a type") end
  local count = count_of(sizes)
  if into then
    if not foreign.is_tensor(into) then fail("recv() got a %s to fill, but the message is a tensor", type(into)) end
    local expected = into:nElement() > 0 and list(into:size()) or {}
    if torch.typename(into) ~= name or not same_sizes(expected, sizes) then
      fail("recv() got a %s of %s to fill, but a %s of %s arrived", torch.typename(into), by_name(expected), name, by_name(sizes))
    end
  end
  local made
  if count == 0 then
    library()
    made = (torch[name:match("^torch%.(%a+)$") or ""] or fail("invalid message: a tensor of the unknown type %s", name))()
  else
    made = library().tensor(name, storage_of(packed, name, count), sizes, packed.memory and packed.strides, packed.memory and packed.offset)
  end
  if not into then return made end
  return count > 0 and into:copy(made) or into
end

local function unpack_storage(packed, into)
  local name = type(packed.storage) == "string" and packed.storage:match("^(torch%.%a+)Storage$")
  if not name then fail("invalid message: a storage without a type") end
  local made = storage_of(packed, name .. "Tensor")
  if not into then return made end
  local torch = foreign.torch()
  if not torch.isStorage(into) or torch.typename(into) ~= packed.storage or #into ~= #made then
    fail("recv() got a %s to fill, but a %s of %d arrived", torch.typename(into) or type(into), packed.storage, #made)
  end
  return into:copy(made)
end

--- Rebuilds a value from pack()'s table; copies its elements into `into`, if that is given.
function values.unpack(packed, into)
  if type(packed) ~= "table" then fail("invalid message: a tensor without a type") end
  if packed.memory and type(packed.memory) ~= "userdata" then fail("invalid message: a tensor without elements") end
  if packed.storage then return unpack_storage(packed, into) end
  return unpack_tensor(packed, into)
end

capi.strided() -- loads the stand-in's C part, which must happen before threads use it
native.hooks(values.pack, values.unpack)

return values
