-- Runs a scenario file (see scenarios.txt) through Lua's raw functions: driver.lua NAME FILE
-- Numbers are FFI memory in LuaJIT, and tables in the other Luas.

local polyverso = require("polyverso")
local tensor = require("polyverso.tensor")
local ffi = jit and require("ffi")

local CTYPES = {
  f32 = "float[?]", f64 = "double[?]", i64 = "int64_t[?]", i32 = "int32_t[?]", u8 = "uint8_t[?]", i8 = "int8_t[?]",
  rows = "int64_t[?]",
}
local DTYPES = {
  f32 = polyverso.MV_F32, f64 = polyverso.MV_F64, i64 = polyverso.MV_I64, i32 = polyverso.MV_I32, u8 = polyverso.MV_U8,
  i8 = polyverso.MV_I8, f16 = polyverso.MV_F16, bf16 = polyverso.MV_BF16,
}
local SPECIAL = {inf = math.huge, nan = 0 / 0}
local variables = {}

local function number(text) return SPECIAL[text] or tonumber(text) end

-- Memory of `kind` for the numbers. C has no type for 16-bit floats.
local function memory(kind, numbers)
  if not ffi or not CTYPES[kind] then
    numbers.dtype = DTYPES[kind]
    return numbers
  end
  local array = ffi.new(CTYPES[kind], #numbers)
  for i, value in ipairs(numbers) do array[i - 1] = value end
  return array
end

-- The numbers in the result of memory(), as a table.
local function numbers_in(stored, kind_count)
  if tensor.is_tensor(stored) then return stored:to_list() end
  if type(stored) == "table" then return stored end
  local numbers = {}
  for i = 1, kind_count do numbers[i] = tonumber(stored[i - 1]) end
  return numbers
end

-- The four bytes of a float. Supports the values of the scenarios: finite and normal, or zero.
local function bytes_of(value)
  if string.pack then return string.pack("<f", value) end
  local mantissa, exponent = math.frexp(math.abs(value))
  local bits = value == 0 and 0 or (exponent + 126) * 2 ^ 23 + (mantissa * 2 - 1) * 2 ^ 23 + (value < 0 and 2 ^ 31 or 0)
  local bytes = {}
  for i = 1, 4 do
    bytes[i] = string.char(bits % 256)
    bits = math.floor(bits / 256)
  end
  return table.concat(bytes)
end

local value_of

local function split(items)
  local list = {}
  for item in items:gmatch("[^,]+") do list[#list + 1] = item end
  return list
end

local function sequence(kind, items)
  local values = {}
  for i, item in ipairs(items) do
    if kind == "list" then values[i] = value_of(item)
    elseif kind == "raw32" then values[i] = bytes_of(number(item))
    else values[i] = number(item) end
  end
  if kind == "list" then return values end
  if kind == "raw32" then return table.concat(values) end
  return memory(kind, values), #values
end

-- The value of a token, as a Lua user would write it; for numbers also their count.
function value_of(token)
  if token == "nil" then return nil end
  if token:find("^%$") then return variables[token] end
  if token:find("^[MK]V_") then return polyverso[token] end
  if token:find('^"') then return token:sub(2, -2) end
  if token:find("^{") then
    local mapping = {}
    for key, text in token:gmatch('(%w[%w_]*)=("[^"]*")') do mapping[key] = value_of(text) end
    local unquoted = token:gsub('%w[%w_]*="[^"]*"', "")
    for key, word in unquoted:gmatch("(%w[%w_]*)=([^,{}]+)") do mapping[key] = value_of(word) end
    return mapping
  end
  local kind, items = token:match("^(%w+)%[(.*)%]$")
  if kind then return sequence(kind, split(items)) end
  return token:find("^%-?%d+%.?%d*$") and tonumber(token) or token
end

local function agrees(result, token)
  if token:find("^~") then return result:find(value_of(token:sub(2)), 1, true) ~= nil end
  local expected = value_of(token)
  if type(expected) ~= "table" then return result == expected end
  if token:find("^list") and #result ~= #expected then return false end
  for key, wanted in pairs(expected) do
    if result[key] ~= wanted then return false end
  end
  return true
end

local function make_buffer(name, kind, count)
  local numbers = {}
  for i = 1, count do numbers[i] = 77 end
  variables[name] = memory(kind, numbers)
end

-- An array that is changed in place must be memory; a table of numbers is not.
local function make_array(name, token)
  local values = value_of(token)
  variables[name] = type(values) == "table" and tensor.copy_of(values, token:match("^%w+")) or values
end

local function compare(name, token)
  local wanted, count = value_of(token)
  local got = numbers_in(variables[name], count)
  wanted = numbers_in(wanted, count)
  for i = 1, count do
    -- A table's floats are rounded to the table's precision; the expected values are not yet.
    local close = math.abs(got[i] - wanted[i]) <= 1e-7 * math.abs(wanted[i])
    if not (ffi and got[i] == wanted[i] or close) then return ("element %d is %s"):format(i, got[i]) end
  end
end

local function call(name, tokens, outcome)
  local arguments, count = {}, 0
  for i = 2, outcome - 1 do
    count = count + 1
    arguments[count] = (value_of(tokens[i]))
  end
  local results = {pcall(polyverso[name], (unpack or table.unpack)(arguments, 1, count))}
  local ended, result = results[1], results[2]
  if #results > 2 then result = {(unpack or table.unpack)(results, 2)} end
  local kind, wanted = tokens[outcome], tokens[outcome + 1]
  if not ended then
    if type(result) == "table" and kind == "!" and wanted == result.name then return nil end
    return "raised " .. tostring(result)
  end
  if kind == "=>" then variables[wanted] = result end
  if kind == "!" or kind == "->" and not agrees(result, wanted) then return "returned " .. tostring(result) end
end

-- Runs one line. Returns the problem, or nil.
local function step(tokens)
  local name = tokens[1]
  if name == "buffer" then return make_buffer(tokens[2], tokens[3], tonumber(tokens[4])) end
  if name == "array" then return make_array(tokens[2], tokens[3]) end
  if name == "expect" then return compare(tokens[2], tokens[3]) end
  if name == "function" then return type(polyverso[tokens[2]]) ~= "function" and "is missing" or nil end
  if name == "constant" then
    return polyverso[tokens[2]] ~= tonumber(tokens[3]) and "is " .. tostring(polyverso[tokens[2]]) or nil
  end
  local outcome = #tokens + 1
  for i, token in ipairs(tokens) do
    if token == "->" or token == "=>" or token == "!" then
      outcome = i
      break
    end
  end
  return call(name, tokens, outcome)
end

-- Splits at white space, except inside quotes.
local function words(line)
  local protected = line:gsub('"[^"]*"', function(text) return (text:gsub(" ", "\1")) end)
  local list = {}
  for word in protected:gmatch("%S+") do list[#list + 1] = (word:gsub("\1", " ")) end
  return list
end

local language, file = arg[1], arg[2]
local scenarios, steps, at = 0, 0, 0
for line in io.lines(file) do
  at = at + 1
  if line:find("^scenario ") then
    scenarios = scenarios + 1
  elseif line:find("%S") and not line:find("^#") then
    local wrong = step(words(line))
    steps = steps + 1
    if wrong then
      io.stderr:write(("%s: line %d: %s: %s\n"):format(language, at, line, wrong))
      os.exit(1)
    end
  end
end
print(("%s: %d scenarios, %d steps"):format(language, scenarios, steps))
