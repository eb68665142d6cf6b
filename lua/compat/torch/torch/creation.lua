--- torch.zeros, ones, range, cat and other functions that make tensors, and random numbers. Internal.

local dispatch = require("torch.dispatch")
local types = require("torch.types")
local strided, fail, check_numbers = types.strided, types.fail, types.check_numbers

local creation = {}
local functions, methods, float_methods = dispatch.functions, types.methods, types.float_methods

-- Defines a function that makes a tensor of the default type, or writes into a result before its arguments:
-- torch.name(...), torch.name(result, ...) and result:name(...).
local function making(name, make, only_floats)
  functions[name] = function(...)
    if types.kind((...)) then return make(...) end
    return make(types.new(types.default), ...)
  end
  local into = only_floats and float_methods or methods
  into[name] = make
end

local function shaped(name, result, ...)
  if select("#", ...) == 0 then return result end
  return strided.shape(result, nil, nil, types.lengths(name .. "()", ...))
end

making("zeros", function(result, ...) return strided.fill(shaped("zeros", result, ...), 0) end)
making("ones", function(result, ...) return strided.fill(shaped("ones", result, ...), 1) end)

making("range", function(result, first, last, step)
  step = step or 1
  check_numbers("range", first, last, step)
  if step == 0 or (last - first) / step < 0 then fail("range(): upper bound and larger bound incoherent with step sign") end
  return strided.range(shaped("range", result, math.floor((last - first) / step) + 1), first, step)
end)

making("linspace", function(result, first, last, count)
  count = count or 100
  check_numbers("linspace", first, last, count)
  if count == 1 and first ~= last then fail("linspace(): 1 point can't reach from %g to %g", first, last) end
  return strided.range(shaped("linspace", result, count), first, count > 1 and (last - first) / (count - 1) or 0)
end, true)

making("logspace", function(result, first, last, count)
  local exponents = float_methods.linspace(types.like(result), first, last, count)
  return functions.pow(result, 10, exponents)
end, true)

making("eye", function(result, rows, columns)
  columns = columns or rows
  check_numbers("eye", rows, columns)
  shaped("eye", result, rows, columns)
  strided.fill(result, 0)
  for i = 1, math.min(rows, columns) do result[i][i] = 1 end
  return result
end)

-- ------------------------------------------------------------------ concatenation

-- The lengths of the concatenation. Missing dimensions of a part count as 1; parts without any are left out before.
local function joined_sizes(parts, dimension)
  local total
  for _, part in ipairs(parts) do
    local sizes = strided.sizes(part)
    for d = #sizes + 1, math.max(dimension, total and #total or 0) do sizes[d] = 1 end
    if not total then
      total = sizes
    else
      for d = 1, math.max(#sizes, #total) do
        if d == dimension then
          total[d] = total[d] + sizes[d]
        elseif total[d] ~= sizes[d] then
          fail("cat(): inconsistent tensor sizes: %s and %s in dimension %d", tostring(total[d]), tostring(sizes[d]), d)
        end
      end
    end
  end
  return total
end

local function join(result, parts, dimension)
  local filled, most = {}, 1
  for _, part in ipairs(parts) do
    dispatch.one_kind("cat", result, part)
    if strided.dim(part) > 0 then
      filled[#filled + 1] = part
      most = math.max(most, strided.dim(part))
    end
  end
  dimension = dimension or most
  if not (dimension >= 1 and dimension <= most + 1 and dimension % 1 == 0) then
    fail("cat(): dimension %s out of range of %dD tensors", tostring(dimension), most)
  end
  if #filled == 0 then return result end
  local made, first = types.like(result, joined_sizes(filled, dimension)), 1
  for _, part in ipairs(filled) do
    local length = dimension <= strided.dim(part) and strided.size(part, dimension) or 1
    strided.copy(made:narrow(dimension, first, length), part)
    first = first + length
  end
  return result:set(made)
end

--- cat([result,] a, b [, dimension]), cat([result,] {a, b, ...} [, dimension])
function functions.cat(...)
  local arguments = {...}
  local dimension = type(arguments[#arguments]) == "number" and table.remove(arguments) or nil
  local parts = arguments[#arguments]
  local has_list = type(parts) == "table"
  local tensors = has_list and parts or {arguments[#arguments - 1], parts}
  local before = #arguments - (has_list and 1 or 2)
  for i, part in ipairs(tensors) do types.check(part, ("cat(): tensor %d"):format(i)) end
  if before < 0 or before > 1 or #tensors == 0 then fail("cat(): ([result,] tensor, tensor [, dimension]) or a table of tensors is expected") end
  return join(before == 1 and arguments[1] or types.like(tensors[1]), tensors, dimension)
end
methods.cat = functions.cat

-- ------------------------------------------------------------------ random numbers

-- Each call uses the next stream of the seed, so a script gets the same numbers on every machine.
local generator = {seed = 0, stream = 0, has_begun = false}

function functions.manualSeed(first, second)
  local seed = second or first -- an optional Generator comes first; it is ignored, because there is only one
  check_numbers("manualSeed", seed)
  generator.seed, generator.stream, generator.has_begun = seed, 0, true
end

function functions.seed()
  functions.manualSeed(os.time() * 1000 + math.floor(os.clock() * 1e6) % 1000)
  return generator.seed
end

function functions.initialSeed()
  if not generator.has_begun then functions.seed() end
  return generator.seed
end

--- The generator's state, a tensor for setRNGState().
function functions.getRNGState()
  local state = types.new(types.double, {2})
  state[1], state[2] = functions.initialSeed(), generator.stream
  return state
end

function functions.setRNGState(state)
  if types.kind(state) ~= types.double or strided.elements(state) ~= 2 then
    fail("setRNGState(): a state from getRNGState() is expected")
  end
  generator.seed, generator.stream, generator.has_begun = state[1], state[2], true
end

local function draw(result, distribution, a, b)
  if strided.elements(result) == 0 then return result end
  functions.initialSeed()
  generator.stream = generator.stream + 1
  return strided.random(result, distribution, generator.seed, generator.stream, a, b)
end

making("rand", function(result, ...) return draw(shaped("rand", result, ...), "uniform", 0, 1) end, true)
making("randn", function(result, ...) return draw(shaped("randn", result, ...), "normal", 0, 1) end, true)

making("randperm", function(result, count)
  check_numbers("randperm", count)
  if count < 1 then fail("randperm(): must be strictly positive, not %g", count) end
  local _, order = draw(types.new(types.double, {count}), "uniform", 0, 1):sort()
  return strided.copy(shaped("randperm", result, count), order)
end)

-- Defines a distribution: tensor:name(...) fills the tensor, torch.name(...) returns one number.
local function distribution(name, fill, only_floats)
  local into = only_floats and float_methods or methods
  into[name] = function(self, ...)
    check_numbers(name, ...)
    return fill(self, ...)
  end
  functions[name] = function(...)
    local first = ...
    if types.kind(first) then return (first[name] or fail("%s(): not supported for a %s", name, types.describe(first)))(...) end
    return into[name](types.new(types.double, {1}), ...)[1]
  end
end

distribution("uniform", function(self, low, high) return draw(self, "uniform", low or 0, high or 1) end, true)
distribution("normal", function(self, mean, deviation)
  if deviation and deviation <= 0 then fail("normal(): standard deviation must be strictly positive") end
  return draw(self, "normal", mean or 0, deviation or 1)
end, true)

-- Defines a distribution by a function of uniform numbers.
local function transformed(name, transform, only_floats)
  distribution(name, function(self, ...)
    local compute = transform(...)
    local uniform = draw(types.new(types.double, (strided.sizes(self))), "uniform", 0, 1)
    return strided.copy(self, strided.apply(compute, uniform))
  end, only_floats)
end

transformed("bernoulli", function(p)
  p = p or 0.5
  if p < 0 or p > 1 then fail("bernoulli(): must be >= 0 and <= 1, not %g", p) end
  return function(u) return u < p and 1 or 0 end
end)
transformed("exponential", function(rate)
  if not rate or rate <= 0 then fail("exponential(): a rate above 0 is expected") end
  return function(u) return -math.log(1 - u) / rate end
end, true)
transformed("cauchy", function(middle, scale)
  return function(u) return (middle or 0) + (scale or 1) * math.tan(math.pi * (u - 0.5)) end
end, true)
transformed("geometric", function(p)
  if not p or p <= 0 or p >= 1 then fail("geometric(): must be > 0 and < 1") end
  return function(u) return math.floor(math.log(1 - u) / math.log(1 - p)) + 1 end
end)
transformed("logNormal", function(mean, deviation)
  mean, deviation = mean or 1, deviation or 2
  local spread = math.log(1 + (deviation / mean) ^ 2)
  return function()
    return math.exp(functions.normal(math.log(mean) - spread / 2, math.sqrt(spread)))
  end
end, true)

-- Whole numbers from a to b; with one argument, from 1 to it; without arguments, as in Torch, all that the type holds.
local WIDEST = {Byte = 255, Int = 2 ^ 31 - 1, Long = 2 ^ 53, Float = 2 ^ 24, Double = 2 ^ 53}
methods.random = function(self, ...)
  check_numbers("random", ...)
  local a, b = ...
  if not a then a, b = 0, WIDEST[types.kind(self).short] end
  if not b then a, b = 1, a end
  if b < a then fail("random(): the upper bound %g is less than the lower bound %g", b, a) end
  return strided.copy(self, draw(types.new(types.long, (strided.sizes(self))), "uniform", math.floor(a), math.floor(b) + 1))
end
functions.random = function(...)
  if types.kind((...)) then return methods.random(...) end
  local one = types.new(types.long, {1})
  if select("#", ...) == 0 then return one:random(1, 2 ^ 32)[1] end
  return one:random(...)[1]
end

--- Draws `count` positions for each row of weights, which are the probabilities; with replacement they may repeat.
function functions.multinomial(weights, count, with_replacement)
  types.check(weights, "multinomial()")
  check_numbers("multinomial", count)
  local rows = strided.dim(weights) == 2 and weights or weights:contiguous():view(1, strided.elements(weights))
  local result = types.new(types.long, {strided.size(rows, 1), count})
  for r = 1, strided.size(rows, 1) do
    local left = rows[r]:double():clone()
    if left:min() < 0 or left:sum() <= 0 then fail("multinomial(): weights must be >= 0, and at least one > 0") end
    if not with_replacement and left:gt(0):sum() < count then fail("multinomial(): not enough weights above 0") end
    for i = 1, count do
      local sums = left:cumsum()
      local wanted, place = functions.uniform(0, sums[strided.elements(sums)]), 1
      while place < strided.elements(sums) and (sums[place] <= wanted or left[place] == 0) do place = place + 1 end
      result[r][i] = place
      if not with_replacement then left[place] = 0 end
    end
  end
  return strided.dim(weights) == 2 and result or result[1]
end
function methods:multinomial(...) return functions.multinomial(self, ...) end

return creation
