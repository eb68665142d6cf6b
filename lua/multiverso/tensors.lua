--- Torch's tensors as data of tables: those of a Torch that is installed, and of the stand-in. Internal.
--
-- Torch is never loaded here: who uses its tensors has loaded it.

local tensors = {}

--- The torch that the script uses, or nil.
function tensors.torch()
  local torch = package.loaded.torch
  return type(torch) == "table" and torch.isTensor and torch or nil
end

function tensors.is_tensor(value)
  local torch = tensors.torch()
  return torch ~= nil and torch.isTensor(value)
end

-- The memory of a FloatTensor without gaps, as the C API takes it.
local function memory_of(tensor)
  if tensor.polyverso then return tensor:polyverso() end
  return {pointer = tensor:data(), count = tonumber(tensor:nElement())}
end

--- A tensor as data of a float table; anything else as it is. What it returns keeps the memory.
function tensors.as_data(value)
  if not tensors.is_tensor(value) then return value end
  local floats = value:float():contiguous()
  local data = memory_of(floats)
  data.holder = floats
  return data
end

--- Row ids of a tensor as a table of integers; anything else as it is.
function tensors.as_ids(value)
  if not tensors.is_tensor(value) then return value end
  local ids = {}
  for i, id in ipairs(value:totable()) do ids[i] = math.floor(id) end
  return ids
end

--- A new FloatTensor of these lengths, filled by fill(memory); or nil where no Torch is loaded.
function tensors.filled(fill, ...)
  local torch = tensors.torch()
  if not torch then return nil end
  local made = torch.FloatTensor(...)
  fill(memory_of(made))
  return made
end

return tensors
