--- Element-wise arithmetic, and the operators. Internal.

local capi = require("polyverso.capi")
local dispatch = require("torch.dispatch")
local tensors = require("torch.tensor")
local types = require("torch.types")
local strided, fail = types.strided, types.fail

local methods, float_methods = types.methods, types.float_methods
local resize_as = tensors.resize_as

-- The result, resized to the source's lengths; its type must be the source's.
local function shaped(name, result, source, ...)
  dispatch.one_kind(name, result, source, ...)
  return resize_as(result, source)
end

local function in_place(name, forms, run, only_floats)
  if not only_floats then
    methods[name] = dispatch.in_place(name, forms, run)
  else
    float_methods[name] = dispatch.in_place(name, forms, function(result, source)
      types.check_float("torch." .. name, source)
      return run(result, source)
    end)
  end
end

-- ------------------------------------------------------------------ one operand

for name, op in pairs{neg = capi.MV_NEG, abs = capi.MV_ABS} do
  in_place(name, {T = true}, function(result, source)
    return strided.unary(op, shaped(name, result, source), source)
  end)
end
for name, op in pairs{sqrt = capi.MV_SQRT, exp = capi.MV_EXP, log = capi.MV_LOG} do
  in_place(name, {T = true}, function(result, source)
    return strided.unary(op, shaped(name, result, source), source)
  end, true)
end
for _, name in ipairs{"sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "floor", "ceil", "round",
                      "trunc", "frac", "log1p", "rsqrt", "sigmoid", "lgamma"} do
  in_place(name, {T = true}, function(result, source)
    return strided.map(name, shaped(name, result, source), source)
  end, true)
end
in_place("sign", {T = true}, function(result, source)
  return strided.map("sign", shaped("sign", result, source), source)
end)

-- ------------------------------------------------------------------ with a number, or with another tensor

-- result = a + factor * b
local function add_scaled(name, result, a, factor, b)
  shaped(name, result, a, b)
  -- If result and b share memory, copies b, unless each element is read just before it is written.
  if strided.same(result, b) and (result ~= a or not result:isSetTo(b)) then b = b:clone() end
  if result ~= a then strided.copy(result, a) end
  return strided.axpy(result, factor, b)
end

local function add(result, a, b, c)
  if type(b) == "number" and not c then return strided.scalar(capi.MV_ADD, shaped("add", result, a), a, b) end
  if type(b) == "number" then return add_scaled("add", result, a, b, c) end
  return strided.binary(capi.MV_ADD, shaped("add", result, a, b), a, b)
end
in_place("add", {Tn = true, TT = true, TnT = true}, add)

in_place("csub", {Tn = true, TT = true, TnT = true}, function(result, a, b, c)
  if type(b) == "number" and not c then return strided.scalar(capi.MV_SUB, shaped("csub", result, a), a, b) end
  if type(b) == "number" then return add_scaled("csub", result, a, -b, c) end
  return strided.binary(capi.MV_SUB, shaped("csub", result, a, b), a, b)
end)

for name, op in pairs{cmul = capi.MV_MUL, cdiv = capi.MV_DIV, cpow = capi.MV_POW} do
  in_place(name, {TT = true}, function(result, a, b)
    return strided.binary(op, shaped(name, result, a, b), a, b)
  end)
end
for name, op in pairs{mul = capi.MV_MUL, div = capi.MV_DIV} do
  in_place(name, {Tn = true}, function(result, a, number)
    return strided.scalar(op, shaped(name, result, a), a, number)
  end)
end
for name, op in pairs{cmax = capi.MV_MAX, cmin = capi.MV_MIN} do
  in_place(name, {Tn = true, TT = true}, function(result, a, b)
    if type(b) == "number" then return strided.scalar(op, shaped(name, result, a), a, b) end
    return strided.binary(op, shaped(name, result, a, b), a, b)
  end)
end

in_place("pow", {Tn = true, nT = true}, function(result, a, b)
  if type(a) == "number" then return strided.scalar(capi.MV_POW, shaped("pow", result, b), b, a, true) end
  return strided.scalar(capi.MV_POW, shaped("pow", result, a), a, b)
end)

in_place("cinv", {T = true}, function(result, source)
  return strided.scalar(capi.MV_DIV, shaped("cinv", result, source), source, 1, true)
end, true)

in_place("clamp", {Tnn = true}, function(result, source, least, most)
  strided.scalar(capi.MV_MAX, shaped("clamp", result, source), source, least)
  return strided.scalar(capi.MV_MIN, result, result, most)
end)

local function by_element(name, compute)
  in_place(name, {Tn = true}, function(result, source, number)
    if number == 0 then fail("%s(): division by zero", name) end
    return strided.apply(function(_, element) return compute(element, number) end, shaped(name, result, source), source)
  end)
end
by_element("fmod", math.fmod)
by_element("mod", math.fmod)
by_element("remainder", function(a, b) return a - b * math.floor(a / b) end)

local arc_tangent = math.atan2 or math.atan -- math.atan of Lua 5.4 takes two arguments
in_place("atan2", {TT = true}, function(result, y, x)
  dispatch.one_kind("atan2", result, y, x)
  local made = y:clone()
  return strided.copy(resize_as(result, y), strided.apply(arc_tangent, made, x))
end)

-- result = a + factor * (b op c)
local function add_composed(name, op)
  in_place(name, {TnTT = true, TTT = true}, function(result, a, ...)
    local factor, b, c = ...
    if select("#", ...) == 2 then factor, b, c = 1, ... end
    dispatch.one_kind(name, result, a, b, c)
    return add_scaled(name, result, a, factor, strided.binary(op, types.like(b, (strided.sizes(b))), b, c))
  end)
end
add_composed("addcmul", capi.MV_MUL)
add_composed("addcdiv", capi.MV_DIV)

in_place("lerp", {TTn = true}, function(result, a, b, weight)
  local difference = strided.binary(capi.MV_SUB, types.like(b, (strided.sizes(b))), b, a)
  return add_scaled("lerp", result, a, weight, difference)
end)

-- ------------------------------------------------------------------ plain numbers

-- Lets a function also take numbers: torch.sqrt(2), torch.pow(2, 3) return a number.
local function of_numbers(name)
  local of_tensors = dispatch.functions[name]
  dispatch.functions[name] = function(first, ...)
    local second, more = ...
    if type(first) ~= "number" or types.kind(second) or more ~= nil then return of_tensors(first, ...) end
    local one = types.new(types.double, {1})
    one[1] = first
    return of_tensors(one, ...)[1]
  end
end
for _, name in ipairs{"abs", "sqrt", "exp", "log", "log1p", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh",
                      "tanh", "floor", "ceil", "round", "trunc", "frac", "rsqrt", "sigmoid", "sign", "pow"} do
  of_numbers(name)
end

-- ------------------------------------------------------------------ comparisons: by default into a ByteTensor

for name, op in pairs{eq = capi.MV_EQ, ne = capi.MV_NE, lt = capi.MV_LT, le = capi.MV_LE, gt = capi.MV_GT, ge = capi.MV_GE} do
  local function into(result, a, b)
    if types.kind(result) ~= types.byte then dispatch.one_kind(name, result, a) end
    resize_as(result, a)
    if type(b) == "number" then return strided.scalar(op, result, a, b) end
    dispatch.one_kind(name, a, b)
    return strided.binary(op, result, a, b)
  end
  local function fresh(a, b) return into(types.new(types.byte), a, b) end
  methods[name] = dispatch.fresh(name, {Tn = fresh, TT = fresh, TTn = into, TTT = into})
end

-- ------------------------------------------------------------------ operators

local functions = dispatch.functions

local function sizes_of(tensor) return (strided.sizes(tensor)) end

function methods.__add(a, b)
  if type(a) == "number" then return functions.add(b, a) end
  return functions.add(a, b)
end

function methods.__sub(a, b)
  if type(a) == "number" then
    return strided.scalar(capi.MV_SUB, types.like(b, sizes_of(b)), b, a, true)
  end
  return functions.csub(a, b)
end

function methods.__unm(a) return functions.neg(a) end

function methods.__mul(a, b)
  if type(a) == "number" then return functions.mul(b, a) end
  if type(b) == "number" then return functions.mul(a, b) end
  if not (types.kind(a) and types.kind(b)) then functions.mul(a, b) end -- raises the error
  local rows, columns = strided.dim(a), strided.dim(b)
  if rows == 1 and columns == 1 then return functions.dot(a, b) end
  if rows == 2 and columns == 1 then return functions.mv(a, b) end
  if rows == 2 and columns == 2 then return functions.mm(a, b) end
  fail("multiplication between %dD and %dD tensors not yet supported", rows, columns)
end

function methods.__div(a, b)
  if type(b) ~= "number" then fail("a tensor can only be divided by a number, not by a %s: see cdiv()", types.describe(b)) end
  return functions.div(a, b)
end

function methods.__mod(a, b) return functions.remainder(a, b) end

return functions
