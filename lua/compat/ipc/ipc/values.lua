--- The leaves of a value in the form that groups accept: C tensors of numbers and of Torch's tensors. Internal.

local capi = require("polyverso.capi")
local foreign = require("polyverso.foreign")
local tensor = require("polyverso.tensor")
local walkTable = require("ipc.utils").walkTable

local values = {}

local TYPES = {[capi.MV_F32] = "Float", [capi.MV_F64] = "Double", [capi.MV_I64] = "Long", [capi.MV_I32] = "Int", [capi.MV_U8] = "Byte"}

local is_integer = math.type and function(value) return math.type(value) == "integer" end or function() return false end

-- A C tensor on the memory of a tensor's elements.
local function memory(given)
  local found = foreign.memory(given)
  return foreign.is_tensor(given) and (found.mv_tensor and found or tensor.view(found)) or found
end

local function number_leaf(value)
  local cell = tensor.full({1}, value, "f64")
  local was_integer = is_integer(value)
  return {
    is_number = true,
    cell = cell,
    get = function() return cell:get(0) end,
    set = function(result)
      if type(result) ~= "number" then error("a number's reduction returned a " .. type(result), 0) end
      cell:fill(result)
    end,
    result = function()
      local result = cell:get(0)
      return was_integer and result % 1 == 0 and math.tointeger(result) or result
    end,
    place = function()
      local theirs = tensor.zeros({1}, "f64")
      return theirs, function() return theirs:get(0) end
    end,
  }
end

local function tensor_leaf(value)
  local whole = value:isContiguous() and value or value:contiguous()
  return {
    cell = memory(whole),
    whole = whole,
    get = function() return whole end,
    set = function(result)
      if result == nil or rawequal(result, whole) then return end
      if not foreign.is_tensor(result) then error("a tensor's reduction returned a " .. type(result), 0) end
      whole:copy(result)
    end,
    result = function()
      if not rawequal(whole, value) then value:copy(whole) end
      return value
    end,
    place = function()
      local theirs = whole:clone()
      return memory(theirs), function() return theirs end
    end,
  }
end

-- Nil for a tensor without elements, which is skipped.
local function leaf_of(value)
  if type(value) == "number" then return number_leaf(value) end
  if not foreign.is_tensor(value) then
    capi.raise(capi.MV_EDTYPE, "a tree shares tensors and numbers, and tables of them, not a " .. type(value))
  end
  return value:nElement() > 0 and tensor_leaf(value) or nil
end

--- The leaves of a table, in the order of its keys.
function values.leaves(holder)
  local leaves = {}
  walkTable(holder, function(value) leaves[#leaves + 1] = leaf_of(value) end)
  return leaves
end

-- Notes on arrays, for nodes without a value of their own: the leaf is a number; the leaf is the whole value.
local IS_NUMBER, IS_ALONE = 1, 2

--- The C tensors of the leaves; for a reduction, with notes on its value, the only one in `holder`.
function values.cells(leaves, holder)
  local cells, notes = {}, {}
  local is_alone = holder and (type(holder[1]) ~= "table" or foreign.is_tensor(holder[1]))
  for i, leaf in ipairs(leaves) do
    cells[i] = leaf.cell
    notes[i] = (leaf.is_number and IS_NUMBER or 0) + (is_alone and IS_ALONE or 0)
  end
  if holder then cells.notes = notes end
  return cells
end

--- Puts the results in place of the leaves, and frees their C tensors.
function values.settle(holder, leaves)
  local i = 0
  walkTable(holder, function(value)
    if type(value) == "number" or value:nElement() > 0 then
      i = i + 1
      local result = leaves[i].result()
      leaves[i].cell:free()
      return result
    end
  end)
end

--- Whether a value consists of numbers and tensors only.
function values.are_plain(holder)
  local plain = true
  walkTable(holder, function(value) plain = plain and (type(value) == "number" or foreign.is_tensor(value)) end)
  return plain
end

--- Whether leaves have the shape that mv_allreduce_drain() returned.
function values.fit(leaves, shape)
  if #leaves ~= #shape then return false end
  for i, leaf in ipairs(leaves) do
    local info = leaf.cell:info()
    if info.count ~= shape[i].count or info.dtype ~= shape[i].dtype then return false end
  end
  return true
end

--- Whether leaves have the same shape as others.
function values.alike(leaves, others)
  local shape = {}
  for i, leaf in ipairs(others) do shape[i] = leaf.cell:info() end
  return values.fit(leaves, shape)
end

--- A value of zeros of that shape.
function values.of_shape(shape)
  local made = {}
  for i, part in ipairs(shape) do
    if part.note % IS_ALONE == IS_NUMBER then
      made[i] = 0
    else
      local name = TYPES[part.dtype]
      local torch = foreign.torch()
      if not name or not torch then capi.raise(capi.MV_EDTYPE, "the other nodes reduce a tensor of a type that is not available here") end
      made[i] = torch[name .. "Tensor"](part.count):zero()
    end
  end
  local is_alone = #shape == 1 and shape[1].note >= IS_ALONE
  return is_alone and made[1] or made
end

return values
