--- Reductions, extremes, sorting and counting. Internal.

local capi = require("polyverso.capi")
local dispatch = require("torch.dispatch")
local tensors = require("torch.tensor")
local types = require("torch.types")
local strided, fail = types.strided, types.fail

local methods, float_methods = types.methods, types.float_methods

local function check_filled(name, tensor)
  if strided.elements(tensor) == 0 then fail("%s(): the tensor has no elements", name) end
end

-- The lengths of a tensor, with 1 for the reduced dimension.
local function reduced_sizes(name, tensor, dimension)
  local sizes = strided.sizes(tensor)
  if not sizes[dimension] then fail("%s(): dimension %s out of range of %dD tensor", name, dimension, #sizes) end
  sizes[dimension] = 1
  return sizes
end

local function into_sizes(result, sizes) return strided.shape(result, nil, nil, sizes) end

-- ------------------------------------------------------------------ sums

local function summing(name, op, only_floats)
  local function along(result, source, dimension)
    dispatch.one_kind(name, result, source)
    local sizes = reduced_sizes(name, source, dimension)
    if strided.same(result, source) then source = source:clone() end
    return strided.reduce(op, source, dimension, into_sizes(result, sizes))
  end
  local function all(source)
    if op ~= capi.MV_SUM then check_filled(name, source) end
    return strided.reduce(op, source)
  end
  local into = only_floats and float_methods or methods
  into[name] = dispatch.fresh(name, {
    T = all,
    Tn = function(source, dimension) return along(types.like(source), source, dimension) end,
    TTn = along,
  }, only_floats)
end
summing("sum", capi.MV_SUM)
summing("mean", capi.MV_MEAN, true)

-- A reduction by a loop over the slices of a dimension: fold(result so far, slice, number of the slice).
local function folding(name, fold, whole)
  local function along(result, source, dimension)
    dispatch.one_kind(name, result, source)
    local sizes = reduced_sizes(name, source, dimension)
    local total = types.like(source, sizes):copy(source:narrow(dimension, 1, 1))
    for i = 2, strided.size(source, dimension) do fold(total, source:narrow(dimension, i, 1), i) end
    return strided.copy(into_sizes(result, sizes), total)
  end
  return dispatch.fresh(name, {
    T = whole,
    Tn = function(source, dimension) return along(types.like(source), source, dimension) end,
    TTn = along,
  })
end

methods.prod = folding("prod", function(total, slice) total:cmul(slice) end, function(source)
  local product = 1
  strided.apply(function(element) product = product * element end, source)
  return product
end)

local function cumulative(name, step)
  local function along(result, source, dimension)
    dispatch.one_kind(name, result, source)
    dimension = dimension or 1
    local made = source:clone()
    for i = 2, strided.size(made, dimension) do step(made:narrow(dimension, i, 1), made:narrow(dimension, i - 1, 1)) end
    return strided.copy(tensors.resize_as(result, source), made)
  end
  local function fresh(source, dimension) return along(types.like(source), source, dimension) end
  methods[name] = dispatch.fresh(name, {T = fresh, Tn = fresh, TT = along, TTn = along})
end
cumulative("cumsum", function(element, before) element:add(before) end)
cumulative("cumprod", function(element, before) element:cmul(before) end)

-- ------------------------------------------------------------------ spread

-- The variance; biased: divides by the number of elements n, otherwise by n - 1.
local function variance(source, biased)
  check_filled("var", source)
  local count = strided.elements(source)
  local apart = source:clone():add(-strided.reduce(capi.MV_MEAN, source))
  return strided.dot(apart, apart) / (biased and count or count - 1)
end

local function variance_along(source, dimension, biased)
  local count = strided.size(source, dimension)
  local apart = source:clone():add(-1, source:mean(dimension):expandAs(source))
  return apart:cmul(apart):sum(dimension):div(biased and count or count - 1)
end

for _, name in ipairs{"var", "std"} do
  local is_std = name == "std"
  local function whole(source, biased)
    local value = variance(source, biased)
    return is_std and math.sqrt(value) or value
  end
  local function along(source, dimension, biased)
    local values = variance_along(source, dimension, biased)
    return is_std and values:sqrt() or values
  end
  float_methods[name] = dispatch.fresh(name, {T = whole, Tb = whole, Tn = along, Tnb = along}, true)
end

-- The p-norm of all elements, in double precision.
local function norm(source, p)
  check_filled("norm", source)
  p = p or 2
  if p == 2 then return strided.reduce(capi.MV_NORM, source) end
  if p == math.huge then return strided.reduce(capi.MV_GREATEST, source:clone():abs()) end
  if p == 0 then return strided.reduce(capi.MV_SUM, source:ne(0)) end
  return strided.reduce(capi.MV_SUM, source:double():clone():abs():pow(p)) ^ (1 / p)
end

local function norm_along(source, p, dimension)
  if p == 0 then return source:ne(0):type(source:type()):sum(dimension) end
  return source:clone():abs():pow(p):sum(dimension):pow(1 / p)
end

float_methods.norm = dispatch.fresh("norm", {
  T = norm,
  Tn = norm,
  Tnn = norm_along,
  TTnn = function(result, source, p, dimension) return result:set(norm_along(source, p, dimension)) end,
}, true)

local function distance(a, b, p) return norm(dispatch.functions.csub(a, b), p) end
float_methods.dist = dispatch.fresh("dist", {TT = distance, TTn = distance}, true)

--- Scales down each slice of a dimension whose p-norm is greater than `most`.
function float_methods:renorm(p, dimension, most)
  types.check_numbers("renorm", p, dimension, most)
  local result = self:clone()
  for i = 1, strided.size(result, dimension) do
    local slice = result:narrow(dimension, i, 1)
    local length = norm(slice, p)
    if length > most then slice:mul(most / (length + 1e-7)) end
  end
  return strided.copy(self, result)
end
function dispatch.functions.renorm(source, ...)
  types.check_float("torch.renorm", source)
  return source:clone():renorm(...)
end

-- ------------------------------------------------------------------ extremes

local function extreme(name, op, where)
  local function along(values, places, source, dimension)
    dispatch.one_kind(name, values, source)
    if types.kind(places) ~= types.long then fail("%s(): the indices must be a LongTensor", name) end
    local sizes = reduced_sizes(name, source, dimension)
    strided.reduce(op, source, dimension, into_sizes(values, sizes))
    strided.reduce(where, source, dimension, into_sizes(places, sizes))
    return values, strided.scalar(capi.MV_ADD, places, places, 1)
  end
  methods[name] = dispatch.fresh(name, {
    T = function(source)
      check_filled(name, source)
      return strided.reduce(op, source)
    end,
    Tn = function(source, dimension)
      check_filled(name, source)
      return along(types.like(source), types.new(types.long), source, dimension)
    end,
    TTTn = along,
  })
end
extreme("max", capi.MV_GREATEST, capi.MV_ARGMAX)
extreme("min", capi.MV_LEAST, capi.MV_ARGMIN)

-- ------------------------------------------------------------------ order

local function sort_into(values, places, source, dimension, descending)
  if type(dimension) == "boolean" then dimension, descending = nil, dimension end
  check_filled("sort", source)
  dispatch.one_kind("sort", values, source)
  tensors.resize_as(values, source)
  strided.copy(values, source)
  if types.kind(places) ~= types.long then fail("sort(): the indices must be a LongTensor") end
  return strided.sort(values, tensors.resize_as(places, source), dimension or strided.dim(source), descending)
end

local function sort(source, ...) return sort_into(types.like(source), types.new(types.long), source, ...) end

methods.sort = dispatch.fresh("sort", {
  T = sort, Tn = sort, Tb = sort, Tnb = sort, TTT = sort_into, TTTn = sort_into, TTTb = sort_into, TTTnb = sort_into,
})

-- The k-th smallest value along a dimension, and its position.
local function kth(source, k, dimension)
  dimension = dimension or strided.dim(source)
  local values, places = sort(source, dimension)
  return values:narrow(dimension, k, 1):clone(), places:narrow(dimension, k, 1):clone()
end
methods.kthvalue = dispatch.fresh("kthvalue", {Tn = kth, Tnn = kth})

local function median(source, dimension)
  dimension = dimension or strided.dim(source)
  return kth(source, math.floor((strided.size(source, dimension) + 1) / 2), dimension)
end
methods.median = dispatch.fresh("median", {T = median, Tn = median})

-- The k smallest or greatest values along a dimension, and their positions.
local function topk(source, k, dimension, greatest)
  k, dimension = k or 1, dimension or strided.dim(source)
  local values, places = sort(source, dimension, greatest or false)
  return values:narrow(dimension, 1, k):clone(), places:narrow(dimension, 1, k):clone()
end
methods.topk = dispatch.fresh("topk", {T = topk, Tn = topk, Tnn = topk, Tnnb = topk})

--- A histogram: the number of elements in each of `bins` equal parts of least .. most; both 0: their range.
local function histogram(source, bins, least, most)
  bins, least, most = bins or 100, least or 0, most or 0
  check_filled("histc", source)
  if bins < 1 then fail("histc(): %g bins: must be at least 1", bins) end
  if least == 0 and most == 0 then least, most = source:min(), source:max() end
  if least == most then least, most = least - 1, most + 1 end
  local counts = types.like(source, {bins})
  strided.apply(function(value)
    if value >= least and value <= most then
      local bin = math.min(bins, math.floor((value - least) / (most - least) * bins) + 1)
      counts[bin] = counts[bin] + 1
    end
  end, source)
  return counts
end
float_methods.histc = dispatch.fresh("histc", {
  T = histogram, Tn = histogram, Tnn = histogram, Tnnn = histogram,
}, true)

-- ------------------------------------------------------------------ logic

local function check_bytes(name, tensor)
  if types.kind(tensor) ~= types.byte then fail("%s(): a ByteTensor is expected, got %s", name, types.describe(tensor)) end
end

methods.all = dispatch.fresh("all", {T = function(tensor)
  check_bytes("all", tensor)
  return strided.elements(tensor) == 0 or strided.reduce(capi.MV_LEAST, tensor) ~= 0
end})
methods.any = dispatch.fresh("any", {T = function(tensor)
  check_bytes("any", tensor)
  return strided.elements(tensor) > 0 and strided.reduce(capi.MV_GREATEST, tensor) ~= 0
end})

methods.equal = dispatch.fresh("equal", {TT = function(a, b)
  dispatch.one_kind("equal", a, b)
  return a:isSameSizeAs(b) and strided.equal(a, b)
end})

return methods
