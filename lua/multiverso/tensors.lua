--- Torch's tensors as data of tables. Internal.

local foreign = require("polyverso.foreign")

local tensors = {torch = foreign.torch, is_tensor = foreign.is_tensor}

--- A tensor as data of a float table; anything else as it is. What it returns keeps the memory.
function tensors.as_data(value)
  return foreign.is_tensor(value) and foreign.memory(value:float():contiguous()) or value
end

--- Row ids of a tensor as a table of integers; anything else as it is.
function tensors.as_ids(value)
  if not foreign.is_tensor(value) then return value end
  local ids = {}
  for i, id in ipairs(value:totable()) do ids[i] = math.floor(id) end
  return ids
end

--- A new FloatTensor of these lengths, filled by fill(memory); or nil where no Torch is loaded.
function tensors.filled(fill, ...)
  local torch = foreign.torch()
  if not torch then return nil end
  local made = torch.FloatTensor(...)
  fill(foreign.memory(made))
  return made
end

return tensors
