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
  local memory, shape = foreign.memory(value), foreign.shape(value)
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
  if not found then
    local hint = type(value) == "table" and ": polyverso.tensor's copy_of{1, 2} makes a tensor" or ""
    capi.raise(capi.MV_EDTYPE, "a tensor or FFI memory is needed, not a " .. type(value) .. hint)
  end
  return found
end

local memory -- LuaJIT's only

--- The dimensions of an FFI array that has two or more of them; nil for other memory.
function arrays.shape_of_memory(value)
  if type(value) ~= "cdata" then return nil end
  memory = memory or require("polyverso.memory")
  return memory.shape(value)
end

function arrays.copy_back(copies)
  for _, copy in ipairs(copies) do
    if tensor.is_tensor(copy.to) then copy.to:assign(copy.from) else copy.to:copy(copy.from) end
  end
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

--- The name of an element of nested tables. An integer adds nothing, because a list has integers for keys.
function arrays.name_below(name, key)
  key = tostring(key)
  if key:find("^%-?%d+$") then return name end
  return name == "" and key or name .. "." .. key
end

local function add_leaves(found, value, copies, name)
  if type(value) ~= "table" or tensor.is_tensor(value) or arrays.is_memory(value) or foreign.is_tensor(value) then
    local is_empty = foreign.is_tensor(value) and value:nElement() == 0 -- Torch tensors without elements are skipped
    if not is_empty then found[#found + 1] = {value = value, tensor = arrays.one(value, copies), name = name} end
    return found
  end
  for _, key in ipairs(arrays.sorted_keys(value)) do add_leaves(found, value[key], copies, arrays.name_below(name, key)) end
  return found
end

--- The arrays of nested tables, in the order of their keys, each with its value, its tensor and its name, the keys
-- joined by dots.
function arrays.leaves(nested, copies) return add_leaves({}, nested, copies, "") end

local labels = setmetatable({}, {__mode = "v"}) -- by text; a label is a table, so that unused ones are collected

-- The label of arrays that `names` and `shapes` describe, line by line.
local function label_of(lines)
  local text = table.concat(lines)
  local known = labels[text]
  if not known then
    known = {capi.crc32(text)}
    labels[text] = known
  end
  return known[1] ~= 0 and known[1] or 1
end

--- The label by which the ranks of a group compare the names and shapes of arrays: docs/groups.md. Nil for arrays of one
-- dimension without names, which fit everything with as many elements.
-- @param names  nil: none
-- @param shape_of  a function of a tensor; nil: its own shape
function arrays.label(tensors, names, shape_of)
  local lines, says = {}, false
  for i, one in ipairs(tensors) do
    local name, shape = names and names[i] or "", ""
    if shape_of or capi.tensor_lengths(one.mv_tensor) > 1 then
      local lengths = shape_of and shape_of(i) or one:shape()
      if #lengths > 1 then shape = ("x%d"):rep(#lengths):sub(2):format((unpack or table.unpack)(lengths)) end
    end
    says = says or name ~= "" or shape ~= ""
    lines[i] = name .. " " .. shape .. "\n"
  end
  return says and label_of(lines) or nil
end

--- The tensors of leaves().
function arrays.tensors(nested, copies)
  local found = {}
  for i, leaf in ipairs(arrays.leaves(nested, copies)) do found[i] = leaf.tensor end
  return found
end

return arrays
