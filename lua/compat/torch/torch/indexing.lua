--- tensor[key] and tensor[key] = value for other keys than plain positions, and element selection by tensors. Internal.

local types = require("torch.types")
local strided, fail = types.strided, types.fail

local methods = types.methods
local indexing = {}

-- ------------------------------------------------------------------ tensor[{...}]

-- Positions first .. last of a dimension; negative ones count from the end.
local function range_of(part, dimension, range)
  local length = strided.size(part, dimension)
  local first, last = range[1], range[2] or range[1]
  if type(first) ~= "number" or type(last) ~= "number" or #range > 2 then
    fail("a range of positions must be {first, last}, {position} or {}")
  end
  if first < 0 then first = length + first + 1 end
  if last < 0 then last = length + last + 1 end
  if last < first then fail("index out of range: {%s, %s} is empty", tostring(range[1]), tostring(last)) end
  return part:narrow(dimension, first, last - first + 1)
end

-- The part of a tensor that the entries select. Each entry is for one dimension: a position, which removes the
-- dimension, or a range. If all entries are positions, the result is a number, or with `one` a tensor of one element.
local function parts(self, key, one)
  local part, dimension = self, 1
  if #key > strided.dim(self) then fail("index out of range: %d entries for %dD tensor", #key, strided.dim(self)) end
  for _, entry in ipairs(key) do
    if type(entry) == "number" then
      if strided.dim(part) == 1 then return one and range_of(part, 1, {entry}) or part[entry] end
      part = strided.select(part, dimension, entry)
    elseif type(entry) == "table" then
      if #entry > 0 then part = range_of(part, dimension, entry) end
      dimension = dimension + 1
    else
      fail("an index must be a position or a range {first, last}, got %s", types.describe(entry))
    end
  end
  return part
end

function indexing.index(self, key)
  types.check(self, "an index")
  if type(key) == "table" then return parts(self, key) end
  if types.storage_kind(key) == types.long then return parts(self, types.list(key)) end
  if types.kind(key) == types.byte then return self:maskedSelect(key) end
  fail("a tensor's index must be a number, a table, a LongStorage or a ByteTensor, got %s", types.describe(key))
end

local function assign(part, value)
  if type(value) == "number" then return strided.fill(part, value) end
  if types.kind(value) then return strided.copy(part, value) end
  fail("a tensor's elements can be set to a number or a tensor, got %s", types.describe(value))
end

function indexing.newindex(self, key, value)
  types.check(self, "an index")
  if type(key) == "number" then
    if strided.dim(self) == 0 then fail("empty tensor: it has no dimension to index") end
    assign(parts(self, {key}, true), value)
  elseif type(key) == "table" then
    assign(parts(self, key, true), value)
  elseif types.storage_kind(key) == types.long then
    assign(parts(self, types.list(key), true), value)
  elseif types.kind(key) == types.byte then
    if type(value) == "number" then self:maskedFill(key, value) else self:maskedCopy(key, value) end
  else
    fail("a tensor has no field %s", tostring(key))
  end
end

-- ------------------------------------------------------------------ with a LongTensor of positions

local function check_positions(what, positions)
  if types.kind(positions) ~= types.long or strided.dim(positions) ~= 1 then
    fail("%s: a LongTensor of one dimension is expected, got %s", what, types.describe(positions))
  end
end

-- The slice at a position of a dimension, which it keeps with length 1.
local function slice(self, dimension, position) return self:narrow(dimension, position, 1) end

function methods:index(first, ...)
  if types.kind(first) then -- (result, dimension, positions)
    local picked = first:index(...)
    return strided.copy(strided.shape(self, nil, nil, (strided.sizes(picked))), picked)
  end
  local positions = ...
  check_positions("index()", positions)
  local sizes = strided.sizes(self)
  if not sizes[first] then fail("index(): dimension %s out of range of %dD tensor", tostring(first), #sizes) end
  sizes[first] = strided.elements(positions)
  local result = types.like(self, sizes)
  for i = 1, sizes[first] do slice(result, first, i):copy(slice(self, first, positions[i])) end
  return result
end

-- Calls change(slice of self, slice of the source) for each position.
local function at_positions(what, self, dimension, positions, source, change)
  check_positions(what, positions)
  local count = strided.elements(positions)
  if strided.size(source, dimension) ~= count then
    fail("%s: %d positions for %d slices", what, count, strided.size(source, dimension))
  end
  for i = 1, count do change(slice(self, dimension, positions[i]), slice(source, dimension, i)) end
  return self
end

function methods:indexCopy(dimension, positions, source)
  return at_positions("indexCopy()", self, dimension, positions, source, strided.copy)
end

function methods:indexAdd(dimension, positions, source)
  return at_positions("indexAdd()", self, dimension, positions, source, function(part, other)
    strided.axpy(part, 1, other)
  end)
end

function methods:indexFill(dimension, positions, value)
  check_positions("indexFill()", positions)
  for i = 1, strided.elements(positions) do strided.fill(slice(self, dimension, positions[i]), value) end
  return self
end

-- Calls visit(number of the element in row-major order; its positions) for every element.
local function each_place(tensor, visit)
  local sizes, at = strided.sizes(tensor), {}
  for d = 1, #sizes do at[d] = 1 end
  for place = 1, strided.elements(tensor) do
    visit(place, at)
    for d = #sizes, 1, -1 do
      at[d] = at[d] + 1
      if at[d] <= sizes[d] then break end
      at[d] = 1
    end
  end
end

-- Calls visit(number of the element in `positions`, index into self's storage) for every element of `positions`.
local function each_gathered(what, self, dimension, positions, visit)
  if types.kind(positions) ~= types.long then fail("%s: a LongTensor is expected", what) end
  local sizes, strides, offset = strided.sizes(self)
  if #sizes ~= strided.dim(positions) or not sizes[dimension] then
    fail("%s: tensors with the same number of dimensions are expected", what)
  end
  local picked = positions:contiguous()
  local row, first = picked:storage(), picked:storageOffset()
  each_place(picked, function(place, at)
    local there, chosen = offset, row[first + place - 1]
    for d = 1, #sizes do
      local position = d == dimension and chosen or at[d]
      if position < 1 or position > sizes[d] then fail("%s: index out of range: %d", what, position) end
      there = there + (position - 1) * strides[d]
    end
    visit(place, there)
  end)
end

function methods:gather(dimension, positions)
  local result = types.like(self, (strided.sizes(positions)))
  local from, to = self:storage(), result:storage()
  each_gathered("gather()", self, dimension, positions, function(place, there) to[place] = from[there] end)
  return result
end

function methods:scatter(dimension, positions, source)
  local to = self:storage()
  local row = type(source) ~= "number" and types.check(source, "scatter()") and source:clone():storage()
  if row and #row ~= strided.elements(positions) then fail("scatter(): source and positions differ in size") end
  each_gathered("scatter()", self, dimension, positions, function(place, there) to[there] = row and row[place] or source end)
  return self
end

-- ------------------------------------------------------------------ with a ByteTensor

local function check_mask(what, self, mask)
  if types.kind(mask) ~= types.byte then fail("%s: a ByteTensor is expected, got %s", what, types.describe(mask)) end
  if strided.elements(mask) ~= strided.elements(self) then fail("%s: sizes do not match", what) end
end

function methods:maskedSelect(mask)
  check_mask("maskedSelect()", self, mask)
  local count = strided.reduce(1, mask:ne(0))
  local result = types.like(self, {count})
  local to, n = result:storage(), 0
  strided.apply(function(chosen, value)
    if chosen ~= 0 then
      n = n + 1
      to[n] = value
    end
  end, mask, self)
  return result
end

function methods:maskedFill(mask, value)
  check_mask("maskedFill()", self, mask)
  return strided.apply(function(_, chosen) if chosen ~= 0 then return value end end, self, mask)
end

function methods:maskedCopy(mask, source)
  check_mask("maskedCopy()", self, mask)
  local from, n = types.check(source, "maskedCopy()") and source:clone():storage(), 0
  if strided.reduce(1, mask:ne(0)) > strided.elements(source) then fail("maskedCopy(): the source has too few elements") end
  return strided.apply(function(_, chosen)
    if chosen == 0 then return nil end
    n = n + 1
    return from[n]
  end, self, mask)
end

--- The positions of all nonzero elements, one row for each: a LongTensor.
function methods:nonzero()
  local found = {}
  local row = self:clone():storage()
  each_place(self, function(place, at)
    if row[place] ~= 0 then found[#found + 1] = {(table.unpack or unpack)(at)} end
  end)
  return types.long.metatable.new(found)
end

return indexing
