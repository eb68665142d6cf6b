--- Converts arrays to tensors that calls use in place: polyverso.tensor's and Torch's tensors and FFI memory, one or in
-- nested tables. Internal.

local capi = require("polyverso.capi")
local foreign = require("polyverso.foreign")
local tensor = require("polyverso.tensor")

local arrays = {}

--- Whether the value is FFI memory, bare or as {pointer = p, count = n}.
function arrays.is_memory(value) return type(value) == "cdata" or type(value) == "table" and value.pointer ~= nil end

-- A tensor in the memory of a contiguous Torch tensor.
local function upon(value)
  local shape = {}
  for d = 1, value:dim() do shape[d] = value:size(d) end
  local memory = foreign.memory(value)
  return tensor.is_tensor(memory) and memory:reshape(shape) or tensor.view(memory, shape)
end

--- The tensor of a single array, or nil for anything else, such as a list. With `copies`, the call writes to the
-- tensor: if it is a copy, `copies` records it for copy_back().
function arrays.tensor_of(value, copies)
  if tensor.is_tensor(value) then return value end
  if arrays.is_memory(value) then return tensor.view(value, type(value) == "table" and value.shape or nil) end
  if not foreign.is_tensor(value) then return nil end
  local whole = value:contiguous()
  if copies and whole ~= value then copies[#copies + 1] = {from = whole, to = value} end
  return upon(whole)
end

--- Like tensor_of(), but raises an error instead of returning nil.
function arrays.one(value, copies)
  local found = arrays.tensor_of(value, copies)
  if not found then capi.raise(capi.MV_EDTYPE, "a tensor or FFI memory is needed, not a " .. type(value)) end
  return found
end

function arrays.copy_back(copies)
  for _, copy in ipairs(copies) do copy.to:copy(copy.from) end
end

-- Numbers before strings, each in their own order, so that all processes visit the keys in the same order.
local function before(a, b)
  if type(a) == type(b) then return a < b end
  return type(a) == "number" or type(a) < type(b) and type(b) ~= "number"
end

function arrays.sorted_keys(nested)
  local keys = {}
  for key in pairs(nested) do keys[#keys + 1] = key end
  table.sort(keys, before)
  return keys
end

local function add_leaves(found, value, copies)
  if type(value) ~= "table" or tensor.is_tensor(value) or arrays.is_memory(value) or foreign.is_tensor(value) then
    local is_empty = foreign.is_tensor(value) and value:nElement() == 0 -- Torch tensors without elements are skipped
    if not is_empty then found[#found + 1] = {value = value, tensor = arrays.one(value, copies)} end
    return found
  end
  for _, key in ipairs(arrays.sorted_keys(value)) do add_leaves(found, value[key], copies) end
  return found
end

--- The arrays of nested tables, in the order of their keys, each with its value and its tensor.
function arrays.leaves(nested, copies) return add_leaves({}, nested, copies) end

--- The tensors of leaves().
function arrays.tensors(nested, copies)
  local found = {}
  for i, leaf in ipairs(arrays.leaves(nested, copies)) do found[i] = leaf.tensor end
  return found
end

return arrays
