--- Views of tensors: other sizes, strides and offsets on the same memory. Internal.

local types = require("torch.types")
local strided, fail = types.strided, types.fail

local methods = types.methods

-- A tensor on the same memory.
local function upon(self, offset, sizes, strides)
  return strided.shape(types.like(self), strided.storage_of(self), offset, sizes, strides)
end

local function check_dimension(what, dimension, sizes)
  if type(dimension) ~= "number" or dimension < 1 or dimension > #sizes or dimension % 1 ~= 0 then
    fail("%s: dimension %s out of range of %dD tensor", what, tostring(dimension), #sizes)
  end
end

function methods:select(dimension, position)
  if strided.dim(self) < 2 then fail("select(): cannot select on a vector") end
  return strided.select(self, dimension, position)
end

function methods:narrow(dimension, first, size)
  local sizes, strides, offset = strided.sizes(self)
  check_dimension("narrow()", dimension, sizes)
  if type(first) ~= "number" or type(size) ~= "number" or first < 1 or size < 1 or first + size - 1 > sizes[dimension] then
    fail("narrow(): %s elements from %s are out of range of dimension %d, which has %d", tostring(size), tostring(first),
      dimension, sizes[dimension])
  end
  sizes[dimension] = size
  return upon(self, offset + (first - 1) * strides[dimension], sizes, strides)
end

--- sub(first, last, first, last, ...), a pair for each dimension; negative positions count from the end.
function methods:sub(...)
  local bounds, part = {...}, self
  types.check_numbers("sub", ...)
  if #bounds == 0 or #bounds % 2 == 1 then fail("sub(): pairs of first and last positions are expected") end
  for dimension = 1, #bounds / 2 do
    local length = strided.size(part, dimension)
    local first, last = bounds[2 * dimension - 1], bounds[2 * dimension]
    if first < 0 then first = length + first + 1 end
    if last < 0 then last = length + last + 1 end
    part = part:narrow(dimension, first, last - first + 1)
  end
  return part
end

function methods:transpose(a, b)
  local sizes, strides, offset = strided.sizes(self)
  check_dimension("transpose()", a, sizes)
  check_dimension("transpose()", b, sizes)
  sizes[a], sizes[b], strides[a], strides[b] = sizes[b], sizes[a], strides[b], strides[a]
  return upon(self, offset, sizes, strides)
end

function methods:t()
  if strided.dim(self) ~= 2 then fail("t(): Tensor must have 2 dimensions, not %d", strided.dim(self)) end
  return self:transpose(1, 2)
end

function methods:permute(...)
  local order, sizes, strides, offset = {...}, strided.sizes(self)
  local new_sizes, new_strides, seen = {}, {}, {}
  for i, dimension in ipairs(order) do
    check_dimension("permute()", dimension, sizes)
    new_sizes[i], new_strides[i], seen[dimension] = sizes[dimension], strides[dimension], true
  end
  for dimension = 1, math.max(#sizes, #order) do
    if not seen[dimension] then fail("permute(): each of the %d dimensions must be given exactly once", #sizes) end
  end
  return upon(self, offset, new_sizes, new_strides)
end

--- All slices of `size` along a dimension, `step` apart; the slices become a new last dimension.
function methods:unfold(dimension, size, step)
  local sizes, strides, offset = strided.sizes(self)
  check_dimension("unfold()", dimension, sizes)
  types.check_numbers("unfold", size, step)
  if size < 1 or size > sizes[dimension] then fail("unfold(): slice size %g is out of range for %d elements", size, sizes[dimension]) end
  if step < 1 then fail("unfold(): step %g: must be at least 1", step) end
  sizes[#sizes + 1], strides[#strides + 1] = size, strides[dimension]
  sizes[dimension] = math.floor((sizes[dimension] - size) / step) + 1
  strides[dimension] = strides[dimension] * step
  return upon(self, offset, sizes, strides)
end

--- Removes all dimensions of length 1, or only the given one.
function methods:squeeze(dimension)
  local sizes, strides, offset = strided.sizes(self)
  if dimension then check_dimension("squeeze()", dimension, sizes) end
  local new_sizes, new_strides = {}, {}
  for d = 1, #sizes do
    if sizes[d] ~= 1 or (dimension and d ~= dimension) then
      new_sizes[#new_sizes + 1], new_strides[#new_strides + 1] = sizes[d], strides[d]
    end
  end
  if #sizes > 0 and #new_sizes == 0 then
    if not dimension or #sizes == 1 then return strided.storage_of(self)[offset] end -- a number, as in Torch
    new_sizes, new_strides = {1}, {1}
  end
  return upon(self, offset, new_sizes, new_strides)
end

-- ------------------------------------------------------------------ reshaping

-- Lengths, of which one may be -1: it is computed from `count`.
local function complete(what, sizes, count)
  local open, product = nil, 1
  for i, size in ipairs(sizes) do
    if size == -1 and open then fail("%s: only one length can be -1", what) end
    if size == -1 then open = i else product = product * size end
  end
  if open and product > 0 and count % product == 0 then
    sizes[open] = math.floor(count / product)
    product = count
  end
  if product ~= count then fail("%s: a tensor of %d elements does not fit these sizes", what, count) end
  return sizes
end

local function viewed(what, self, sizes)
  if not strided.contiguous(self) then fail("%s: expecting a contiguous tensor", what) end
  local _, _, offset = strided.sizes(self)
  return upon(self, offset, complete(what, sizes, strided.elements(self)))
end

-- Torch also allows (result, source, ...).
function methods:view(first, ...)
  if types.kind(first) then return self:set(viewed("view()", first, types.lengths("view()", ...))) end
  return viewed("view()", self, types.lengths("view()", first, ...))
end

function methods:viewAs(other) return viewed("viewAs()", self, (strided.sizes(other))) end

--- A copy with other lengths.
function methods:reshape(first, ...)
  if types.kind(first) then
    local sizes = complete("reshape()", types.lengths("reshape()", ...), strided.elements(first))
    return strided.copy(strided.shape(self, nil, nil, sizes), first)
  end
  local sizes = complete("reshape()", types.lengths("reshape()", first, ...), strided.elements(self))
  return strided.copy(types.like(self, sizes), self)
end

function methods:expand(...)
  local wanted = types.lengths("expand()", ...)
  local sizes, strides, offset = strided.sizes(self)
  if #wanted ~= #sizes then fail("expand(): the number of dimensions provided must equal tensor:dim()") end
  for d = 1, #sizes do
    if sizes[d] == 1 then
      sizes[d] = wanted[d]
      if wanted[d] ~= 1 then strides[d] = 0 end
    elseif wanted[d] ~= sizes[d] and wanted[d] ~= -1 then
      fail("expand(): incorrect size: only supporting singleton expansion (size=1)")
    end
  end
  return upon(self, offset, sizes, strides)
end

function methods:expandAs(other)
  types.check(other, "expandAs()")
  return self:expand(other:size())
end

--- A copy that repeats the tensor the given number of times along each dimension.
function methods:repeatTensor(first, ...)
  if types.kind(first) then return self:set(first:repeatTensor(...)) end
  local times = types.lengths("repeatTensor()", first, ...)
  local sizes = strided.sizes(self)
  if #times < #sizes then fail("repeatTensor(): fewer repetitions than dimensions") end
  while #sizes < #times do table.insert(sizes, 1, 1) end
  local total = {}
  for d = 1, #sizes do total[d] = sizes[d] * times[d] end
  local result = types.like(self, total)
  local source = self:contiguous():view(types.long_storage(sizes))
  local block = result
  for d = 1, #sizes do block = block:unfold(d, sizes[d], sizes[d]) end
  -- block now has the shape (times ..., sizes ...)
  local spread = {}
  for d = 1, #sizes do spread[d], spread[#sizes + d] = 1, sizes[d] end
  block:copy(source:view(types.long_storage(spread)):expandAs(block))
  return result
end

-- ------------------------------------------------------------------ splitting

-- Torch also allows (parts, tensor, ...): the table receives the tensors.
local function parts_first(first, ...)
  if type(first) ~= "table" then return {}, first, ... end
  for i = #first, 1, -1 do first[i] = nil end
  return first, ...
end

local function split(parts, self, size, dimension)
  dimension = dimension or 1
  types.check(self, "split()")
  if type(size) ~= "number" or size < 1 then fail("split(): part size %s: must be at least 1", tostring(size)) end
  local length = strided.size(self, dimension)
  for first = 1, length, size do
    parts[#parts + 1] = self:narrow(dimension, first, math.min(size, length - first + 1))
  end
  return parts
end

--- A table of tensors of `size` along the dimension; the last may be shorter.
function methods:split(...) return split(parts_first(self, ...)) end

--- A table of at most `count` tensors of equal size, except that the last may be smaller.
function methods:chunk(...)
  local parts, source, count, dimension = parts_first(self, ...)
  types.check(source, "chunk()")
  if type(count) ~= "number" or count < 1 then fail("chunk(): %s parts: must be at least 1", tostring(count)) end
  return split(parts, source, math.ceil(strided.size(source, dimension or 1) / count), dimension)
end

return methods
