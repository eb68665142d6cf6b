--- Conversions between Torch's tensors and the data of tables. Internal.

local foreign = require("polyverso.foreign")

local tensors = {torch = foreign.torch, is_tensor = foreign.is_tensor}

--- A tensor as data of a float table; anything else unchanged. The returned value keeps the memory alive.
function tensors.as_data(value)
  return foreign.is_tensor(value) and foreign.memory(value:float():contiguous()) or value
end

--- A new FloatTensor of these lengths, filled by fill(memory); nil if Torch is not loaded.
function tensors.filled(fill, ...)
  local torch = foreign.torch()
  if not torch then return nil end
  local made = torch.FloatTensor(...)
  fill(foreign.memory(made))
  return made
end

return tensors
