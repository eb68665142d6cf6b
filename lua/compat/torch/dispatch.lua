--- How Torch's functions take their arguments: a result first or not, as a method or not. Internal.
--
-- torch.add(a, 2) makes a tensor, torch.add(r, a, 2) writes into r, a:add(2) changes a, and r:add(a, 2) writes into r.
-- An operation is defined by what can follow the result, as a string of letters: n number, T tensor, b boolean, s
-- string, ? anything else.

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

--- All tensors of one type, which is returned.
function dispatch.one_kind(name, first, ...)
  local kind = types.kind(first)
  for i = 1, select("#", ...) do
    local other = select(i, ...)
    if types.kind(other) and types.kind(other) ~= kind then
      fail("invalid arguments: %s got a %s beside a %s", name, types.describe(other), types.describe(first))
    end
  end
  return kind
end

--- An operation whose result is the tensor of a method's call: torch.name and tensor:name.
-- @param forms what follows the result: {Tn = true}, or false where it is no method's form
-- @param run called with result and the rest; returns what the call does
-- @param make makes the result of the arguments where none is given
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

--- An operation whose result is always a new one, unless results are given before the operands.
-- @param forms the operands, and the results before them: {Tn = run, TTn = run, ...}
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
