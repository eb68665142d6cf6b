--- Torch's tensors: those of a Torch that is installed, and of the stand-in. Internal.
--
-- Torch is never loaded here: who uses its tensors has loaded it.

local foreign = {}

--- The torch that the script uses, or nil.
function foreign.torch()
  local torch = package.loaded.torch
  return type(torch) == "table" and torch.isTensor and torch or nil
end

function foreign.is_tensor(value)
  local torch = foreign.torch()
  return torch ~= nil and torch.isTensor(value)
end

--- The memory of a tensor without gaps, as the C API takes it. Keeps the tensor.
function foreign.memory(tensor)
  if tensor.polyverso then return tensor:polyverso() end
  return {pointer = tensor:data(), count = tonumber(tensor:nElement()), holder = tensor}
end

return foreign
