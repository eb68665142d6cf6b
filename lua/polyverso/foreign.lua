--- Access to Torch's tensors, of an installed Torch or of the stand-in. Internal.
--
-- Torch is never loaded here: a script that uses its tensors has loaded it.

local foreign = {}
local loaded = package.loaded

--- The torch module that the script has loaded, or nil.
function foreign.torch()
  local torch = loaded.torch
  return type(torch) == "table" and torch.isTensor and torch or nil
end

function foreign.is_tensor(value)
  if not loaded.torch then return false end
  local torch = foreign.torch()
  return torch ~= nil and torch.isTensor(value)
end

--- The lengths of a tensor's dimensions.
function foreign.shape(tensor)
  local shape = {}
  for d = 1, tensor:dim() do shape[d] = tonumber(tensor:size(d)) end
  return shape
end

--- The memory of a contiguous tensor, in a form that the C API accepts. It keeps the memory alive.
function foreign.memory(tensor)
  if tensor.polyverso then return tensor:polyverso() end
  return {pointer = tensor:data(), count = tonumber(tensor:nElement()), holder = tensor}
end

return foreign
