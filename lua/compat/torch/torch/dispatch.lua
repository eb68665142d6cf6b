--- The argument conventions of Torch's functions: with or without a result first, as function or method. Internal.
--
-- torch.add(a, 2) makes a tensor, torch.add(r, a, 2) writes into r, a:add(2) changes a, and r:add(a, 2) writes into r.
-- An operation is defined by the arguments that may follow the result, as a string of letters: n number, T tensor,
-- b boolean, s string, ? anything else.

local types = require("torch.types")
local fail = types.fail

local dispatch = {functions = {}}

local LETTERS = {number = "n", boolean = "b", string = "s"}

local function letters(...)
  local found = {}
  for i = 1, select("#", ...) do
    local value = select(i, ...)
    found[i] = types.kind(value) and "T" or LETTERS[type(value)] or "?"
  end
  return table.concat(found)
end

local function refuse(name, forms, ...)
  local got, expected = {}, {}
  for i = 1, select("#", ...) do got[i] = types.describe((select(i, ...))) end
  local words = {T = "Tensor", n = "number", b = "boolean", s = "string"}
  for form in pairs(forms) do
    expected[#expected + 1] = ("[*Tensor*] " .. form:gsub(".", function(letter) return words[letter] .. " " end)):gsub(" $", "")
  end
  table.sort(expected)
  fail("invalid arguments: %s\nexpected arguments of %s: %s", table.concat(got, " "), name, table.concat(expected, " | "))
end

--- Checks that all tensors have one type, and returns it.
function dispatch.one_kind(name, first, ...)
  local kind = types.kind(first)
  for i = 1, select("#", ...) do
    local other = select(i, ...)
    if types.kind(other) and types.kind(other) ~= kind then
      fail("invalid arguments: %s got a %s together with a %s", name, types.describe(other), types.describe(first))
    end
  end
  return kind
end

--- Defines torch.name and tensor:name for an operation that writes into a result; a method's result is its own tensor.
-- @param forms the arguments that may follow the result: {Tn = true}
-- @param run called with the result and the arguments; returns the operation's return values
-- @param make makes a result from the arguments if none is given
function dispatch.in_place(name, forms, run, make)
  make = make or function(first, second) return types.new(types.kind(first) or types.kind(second)) end
  dispatch.functions[name] = function(...)
    local got = letters(...)
    if forms[got] then return run(make(...), ...) end
    if got:sub(1, 1) ~= "T" or not forms[got:sub(2)] then refuse("torch." .. name, forms, ...) end
    return run(...)
  end
  return function(self, ...)
    local got = letters(...)
    if forms[got] then return run(self, ...) end
    if not forms["T" .. got] then refuse("Tensor:" .. name, forms, ...) end
    return run(self, self, ...)
  end
end

--- Defines an operation that makes new results, unless results are given before the operands.
-- @param forms by the letters of the operands, with or without results before them: {Tn = run, TTn = run, ...}
-- @param only_floats refuses tensors of integers
function dispatch.fresh(name, forms, only_floats)
  local function call(...)
    local run = forms[letters(...)]
    if not run then refuse("torch." .. name, forms, ...) end
    if only_floats then types.check_float("torch." .. name, (...)) end
    return run(...)
  end
  dispatch.functions[name] = call
  return call
end

return dispatch
