--- Products of vectors and matrices. Internal.

local dispatch = require("torch.dispatch")
local tensors = require("torch.tensor")
local types = require("torch.types")
local strided, fail = types.strided, types.fail

local methods = types.methods

local function sizes_text(tensor)
  local sizes = strided.sizes(tensor)
  return table.concat(sizes, "x")
end

methods.dot = dispatch.fresh("dot", {TT = function(a, b)
  dispatch.one_kind("dot", a, b)
  return strided.dot(a, b)
end})

local function check_dims(name, tensor, dims)
  if strided.dim(tensor) ~= dims then
    fail("%s: a %dD tensor is expected, got %dD", name, dims, strided.dim(tensor))
  end
end

-- a * b of two matrices, as a new tensor.
local function product(name, a, b)
  dispatch.one_kind(name, a, b)
  check_dims(name, a, 2)
  check_dims(name, b, 2)
  if strided.size(a, 2) ~= strided.size(b, 1) then
    fail("%s: size mismatch, m1: [%s], m2: [%s]", name, sizes_text(a), sizes_text(b))
  end
  return strided.product(types.like(a, {strided.size(a, 1), strided.size(b, 2)}), a, b)
end

local function as_column(vector) return vector:contiguous():view(strided.elements(vector), 1) end
local function as_row(vector) return vector:contiguous():view(1, strided.elements(vector)) end

-- The products; each returns a new tensor.
local products = {
  mm = product,
  mv = function(name, matrix, vector)
    check_dims(name, matrix, 2)
    check_dims(name, vector, 1)
    local column = product(name, matrix, as_column(vector))
    return column:view(strided.size(matrix, 1))
  end,
  ger = function(name, a, b)
    check_dims(name, a, 1)
    check_dims(name, b, 1)
    return product(name, as_column(a), as_row(b))
  end,
  bmm = function(name, a, b)
    check_dims(name, a, 3)
    check_dims(name, b, 3)
    if strided.size(a, 1) ~= strided.size(b, 1) then fail("%s: batches of different sizes", name) end
    local result = types.like(a, {strided.size(a, 1), strided.size(a, 2), strided.size(b, 3)})
    for i = 1, strided.size(a, 1) do
      strided.copy(strided.select(result, 1, i), product(name, strided.select(a, 1, i), strided.select(b, 1, i)))
    end
    return result
  end,
}

for name, multiply in pairs(products) do
  methods[name] = dispatch.in_place(name, {TT = true}, function(result, a, b)
    dispatch.one_kind(name, result, a, b)
    local made = multiply(name, a, b)
    return strided.copy(tensors.resize_as(result, made), made)
  end)
end

-- result = beta * c + alpha * (a times b): add(c, a, b), add(beta, c, alpha, a, b), add(c, alpha, a, b)
local function adding(name, multiply)
  methods[name] = dispatch.in_place(name, {TTT = true, TnTT = true, nTnTT = true, nTTT = true}, function(result, ...)
    local arguments, beta, alpha = {...}, 1, 1
    if type(arguments[1]) == "number" then beta = table.remove(arguments, 1) end
    if type(arguments[2]) == "number" then alpha = table.remove(arguments, 2) end
    local c, a, b = arguments[1], arguments[2], arguments[3]
    dispatch.one_kind(name, result, c, a, b)
    local made = multiply(name, a, b)
    if not made:isSameSizeAs(c) then fail("%s: size mismatch, [%s] and [%s]", name, sizes_text(c), sizes_text(made)) end
    strided.axpy(made:mul(alpha), beta, c)
    return strided.copy(tensors.resize_as(result, c), made)
  end, function(first, second) return types.like(type(first) == "number" and second or first) end)
end
adding("addmm", products.mm)
adding("addmv", products.mv)
adding("addr", products.ger)
adding("baddbmm", products.bmm)

-- The cross product of vectors of length 3 along a dimension; the default is the first dimension of length 3.
methods.cross = dispatch.in_place("cross", {TT = true, TTn = true}, function(result, a, b, dimension)
  dispatch.one_kind("cross", result, a, b)
  local sizes = strided.sizes(a)
  for d = 1, #sizes do dimension = dimension or sizes[d] == 3 and d or nil end
  if not a:isSameSizeAs(b) or sizes[dimension] ~= 3 then
    fail("cross: two tensors of one size with a dimension of 3 are expected, got [%s] and [%s]", sizes_text(a), sizes_text(b))
  end
  local function part(tensor, i) return tensor:narrow(dimension, (i - 1) % 3 + 1, 1) end
  local made = types.like(a, sizes)
  for i = 1, 3 do
    strided.copy(part(made, i), part(a, i + 1):clone():cmul(part(b, i + 2)):add(-1, part(a, i + 2):clone():cmul(part(b, i + 1))))
  end
  return strided.copy(tensors.resize_as(result, made), made)
end)

-- ------------------------------------------------------------------ diagonals and triangles

-- The diagonal of a matrix; k > 0: above the main diagonal.
local function diagonal(matrix, k)
  local rows, columns = strided.size(matrix, 1), strided.size(matrix, 2)
  local length = k >= 0 and math.min(rows, columns - k) or math.min(rows + k, columns)
  if length < 1 then fail("diag(): a matrix [%s] has no diagonal %s", sizes_text(matrix), tostring(k)) end
  local step = strided.stride(matrix, 1) + strided.stride(matrix, 2)
  local offset = matrix:storageOffset() + (k >= 0 and k * strided.stride(matrix, 2) or -k * strided.stride(matrix, 1))
  return strided.shape(types.like(matrix), matrix:storage(), offset, {length}, {step})
end

local function diag(source, k)
  k = k or 0
  if strided.dim(source) == 2 then return diagonal(source, k):clone() end
  check_dims("diag", source, 1)
  local length = strided.elements(source) + math.abs(k)
  local matrix = types.like(source, {length, length})
  strided.copy(diagonal(matrix, k), source)
  return matrix
end
methods.diag = dispatch.fresh("diag", {T = diag, Tn = diag})

methods.trace = dispatch.fresh("trace", {T = function(source)
  check_dims("trace", source, 2)
  return diagonal(source, 0):sum()
end})

local function triangle(name, is_kept)
  local function of(source, k)
    check_dims(name, source, 2)
    local result = source:clone()
    for i = 1, strided.size(result, 1) do
      for j = 1, strided.size(result, 2) do
        if not is_kept(j - i, k or 0) then result[i][j] = 0 end
      end
    end
    return result
  end
  methods[name] = dispatch.fresh(name, {T = of, Tn = of})
end
triangle("tril", function(right, k) return right <= k end)
triangle("triu", function(right, k) return right >= k end)

return methods
