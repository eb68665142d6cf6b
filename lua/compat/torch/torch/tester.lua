--- torch.TestSuite and torch.Tester: named tests, assertions that are counted, and a summary. Internal.

local class = require("torch.class")
local equality = require("torch.equality")
local types = require("torch.types")

local module = {}
local LINE = 80

-- ------------------------------------------------------------------ suites

--- A table of test functions that refuses to define a name twice.
function module.TestSuite()
  local tests = {}
  return setmetatable({__tests = tests, __isTestSuite = true}, {
    __index = tests,
    __newindex = function(_, name, test)
      if tests[name] ~= nil then error(("Test %s is already defined."):format(tostring(name)), 2) end
      if type(test) == "table" then error("Nested tables of tests are not supported", 2) end
      if type(test) ~= "function" then error("Only functions are supported as members of a TestSuite", 2) end
      tests[name] = test
    end,
  })
end

-- ------------------------------------------------------------------ a tester

local Tester = class.class("torch.Tester", nil, module)

function Tester:__init()
  self.errors, self.warnings = {}, {}
  self.tests, self.disabledTests = {}, {}
  self._order, self._warningCount = {}, {}
  self._currentTestName = ""
  self._assertTensorEqIgnoresDims = true -- {{1}} equals {1}, with a warning, as in Torch's older testers
end

--- Stops the run at the first failure.
function Tester:setEarlyAbort(early) self.earlyAbort = early end
--- Lets errors and failures end the program with their traceback.
function Tester:setRethrowErrors(rethrow) self.rethrow = rethrow end
--- Leaves reports of single failures out.
function Tester:setSummaryOnly(summary) self.summaryOnly = summary end

-- The test's name, the message, and the two innermost lines of the user's code in the traceback.
function Tester:_addDebugInfo(message)
  local lines = {}
  for line in debug.traceback("", 3):gmatch("[^\n]+") do
    if line:find("xpcall", 1, true) then break end
    if not line:find("torch/tester.lua", 1, true) and not line:find("^stack traceback") then lines[#lines + 1] = line end
  end
  local name = self._currentTestName
  return ("%s%s\n%s"):format(name ~= "" and name .. "\n" or "", message, table.concat(lines, "\n", 1, math.min(2, #lines)))
end

function Tester:_success()
  local name = self._currentTestName
  if self.assertionPass then self.assertionPass[name] = (self.assertionPass[name] or 0) + 1 end
  return true
end

function Tester:_failure(message)
  if self.rethrow then error(message, 2) end
  local name = self._currentTestName
  if self.assertionFail then self.assertionFail[name] = (self.assertionFail[name] or 0) + 1 end
  self.errors[#self.errors + 1] = self:_addDebugInfo(message)
  return false
end

function Tester:_warning(message)
  local name = self._currentTestName
  self._warningCount[name] = (self._warningCount[name] or 0) + 1
  self.warnings[#self.warnings + 1] = self:_addDebugInfo(message)
end

function Tester:_assert_sub(condition, message)
  if condition then return self:_success() end
  return self:_failure(message)
end

-- ------------------------------------------------------------------ assertions

local function message_of(message, ...)
  assert(select("#", ...) == 0, "Unexpected arguments passed to test function")
  assert(message == nil or type(message) == "string", "message parameter must be a string")
  return (message and message ~= "") and message .. "\n" or ""
end

-- A tolerance and a message, in any order, both optional.
local function tolerance_and_message(default, ...)
  local tolerance, message
  for _, value in ipairs{...} do
    if type(value) == "string" then
      assert(not message, "Unexpected string argument; already have message")
      message = value .. "\n"
    else
      assert(type(value) == "number", "Unrecognized argument; should be a tolerance or message")
      assert(not tolerance, "Unexpected number argument; already have tolerance")
      assert(value >= 0, "tolerance cannot be negative")
      tolerance = value
    end
  end
  return tolerance or default, message or ""
end

function Tester:assert(condition, ...)
  local message = message_of(...)
  if type(condition) ~= "boolean" then
    self:_warning(" :assert should only be used for boolean conditions. To check for non-nil variables, do this "
      .. "explicitly: Tester:assert(var ~= nil).")
  end
  return self:_assert_sub(condition, ("%sBOOL violation condition=%s"):format(message, tostring(condition)))
end

local function general(self, a, b, negated, ...)
  local tolerance, message = tolerance_and_message(0, ...)
  local is_so, why = equality.of(a, b, tolerance, negated)
  return self:_assert_sub(is_so, message .. (why or ""))
end

function Tester:assertGeneralEq(a, b, ...) return general(self, a, b, false, ...) end
function Tester:assertGeneralNe(a, b, ...) return general(self, a, b, true, ...) end
Tester.eq, Tester.ne = Tester.assertGeneralEq, Tester.assertGeneralNe

-- name: the assertion's name; sign: the operator between the two values in a failure's message
local function ordering(name, sign, holds)
  Tester["assert" .. name] = function(self, a, b, ...)
    local text = ("%s%s failed: %s %s %s"):format(message_of(...), name:upper(), tostring(a), sign, tostring(b))
    return self:_assert_sub(holds(a, b), text)
  end
end
ordering("lt", ">=", function(a, b) return a < b end)
ordering("gt", "<=", function(a, b) return a > b end)
ordering("le", ">", function(a, b) return a <= b end)
ordering("ge", "<", function(a, b) return a >= b end)
ordering("eq", "~=", function(a, b) return a == b end)
ordering("ne", "==", function(a, b) return a ~= b end)
for _, name in ipairs{"lt", "gt", "le", "ge"} do Tester[name] = Tester["assert" .. name] end

function Tester:assertalmosteq(a, b, ...)
  local tolerance, message = tolerance_and_message(1e-16, ...)
  return self:_assert_sub(math.abs(a - b) <= tolerance,
    ("%sALMOST_EQ failed: %s ~= %s with tolerance=%s"):format(message, tostring(a), tostring(b), tostring(tolerance)))
end

local function of_tensors(self, a, b, negated, ...)
  assert(types.kind(a), "First argument should be a Tensor")
  assert(types.kind(b), "Second argument should be a Tensor")
  local tolerance, message = tolerance_and_message(0, ...)
  local any_dimensions = self._assertTensorEqIgnoresDims
  local is_so, why = equality.of_tensors(a, b, tolerance, negated, any_dimensions)
  if any_dimensions and is_so and not negated and not a:isSameSizeAs(b) then
    self:_warning("Tensors have the same content but different dimensions. For backwards compatibility, they are "
      .. "considered equal, but this may change in the future. Consider using :eq to check for equality instead.")
  end
  return self:_assert_sub(is_so, message .. (why or ""))
end

function Tester:assertTensorEq(a, b, ...) return of_tensors(self, a, b, false, ...) end
function Tester:assertTensorNe(a, b, ...) return of_tensors(self, a, b, true, ...) end

local function of_tables(self, a, b, negated, ...)
  assert(type(a) == "table", "First argument should be a Table")
  assert(type(b) == "table", "Second argument should be a Table")
  return general(self, a, b, negated, ...)
end

function Tester:assertTableEq(a, b, ...) return of_tables(self, a, b, false, ...) end
function Tester:assertTableNe(a, b, ...) return of_tables(self, a, b, true, ...) end

--- f() must raise an error for which fits(error) is true.
function Tester:assertErrorObj(f, fits, ...)
  local message = message_of(...)
  local ended, failure = pcall(f)
  return self:_assert_sub(not ended and fits(failure), ("%sERROR violation: err=%s"):format(message, tostring(failure)))
end

function Tester:assertError(f, ...) return self:assertErrorObj(f, function() return true end, ...) end

function Tester:assertErrorMsg(f, text, ...)
  return self:assertErrorObj(f, function(failure) return failure == text end, ...)
end

function Tester:assertErrorPattern(f, pattern, ...)
  return self:assertErrorObj(f, function(failure) return tostring(failure):find(pattern) ~= nil end, ...)
end

function Tester:assertNoError(f, ...)
  local message = message_of(...)
  local ended, failure = pcall(f)
  return self:_assert_sub(ended, ("%sERROR violation: err=%s"):format(message, tostring(failure)))
end

-- ------------------------------------------------------------------ adding tests

local function by_name(tests)
  local names = {}
  for name in pairs(tests) do names[#names + 1] = name end
  table.sort(names, function(a, b) return tostring(a) < tostring(b) end)
  return names
end

--- Adds a named function, or a table or suite of them. _setUp and _tearDown run before and after every test.
function Tester:add(tests, name)
  if type(tests) == "table" then
    assert(name == nil, "Name parameter is forbidden for a table of tests, since its use is ambiguous")
    if rawget(tests, "__isTestSuite") then
      tests = rawget(tests, "__tests")
    else
      self:_warning("Should use TestSuite rather than plain lua table")
    end
    for _, key in ipairs(by_name(tests)) do
      assert(type(tests[key]) ~= "table", "Nested sets of tests are not supported")
      self:add(tests[key], key)
    end
    return self
  end
  assert(type(tests) == "function", "Only tables of functions and functions supported")
  if name == "_setUp" or name == "_tearDown" then
    assert(rawget(self, name) == nil, ("Only one %s function allowed"):format(name == "_setUp" and "set-up" or "tear-down"))
    rawset(self, name, tests)
    return self
  end
  name = name or "unknown"
  assert(self.tests[name] == nil, ("Test with name %s already exists!"):format(tostring(name)))
  self.tests[name] = tests
  self._order[#self._order + 1] = name
  return self
end

function Tester:disable(names)
  if type(names) == "string" then names = {names} end
  assert(type(names) == "table", "Expecting name or list for disable")
  for _, name in ipairs(names) do
    assert(self.tests[name], ("Unrecognized test '%s'"):format(tostring(name)))
    self.disabledTests[name] = true
  end
  return self
end

-- The names of the tests that match one of the patterns, in the order in which they were added.
function Tester:_chosen(patterns)
  if patterns == nil then return self._order end
  if type(patterns) == "string" then patterns = {patterns} end
  assert(type(patterns) == "table", "Only accept a name or table of test names (or nil for all tests)")
  local wanted, names = {}, {}
  for _, pattern in ipairs(patterns) do
    local found = false
    for name in pairs(self.tests) do
      if tostring(name):match(pattern) then wanted[name], found = true, true end
    end
    assert(found, ("Couldn't find test '%s'"):format(pattern))
  end
  for _, name in ipairs(self._order) do
    if wanted[name] then names[#names + 1] = name end
  end
  return names
end

-- ------------------------------------------------------------------ a run

local function counted(count, word) return ("%d %s%s"):format(count, word, count == 1 and "" or "s") end

-- Returns whether the test ended without an error, and whether all its assertions held.
function Tester:_pcall(test)
  local before = #self.errors
  if self.rethrow then
    test()
    return true, before == #self.errors
  end
  local ended, failure = xpcall(test, function(failure) return debug.traceback(tostring(failure), 2) end)
  if not ended then
    self.errors[#self.errors + 1] = ("%s\n Function call failed\n%s\n"):format(self._currentTestName, failure)
  end
  return ended, ended and before == #self.errors
end

-- Runs one test; returns SKIP, ERROR, PASS or FAIL.
function Tester:_runOne(name)
  if self.disabledTests[name] then return "SKIP" end
  if rawget(self, "_setUp") then self._setUp(name) end
  local ended, passed = self:_pcall(self.tests[name])
  if rawget(self, "_tearDown") then self._tearDown(name) end
  if not ended then self.testError[name] = 1 end
  return not ended and "ERROR" or passed and "PASS" or "FAIL"
end

function Tester:_runAll(names)
  io.write("Running ", counted(#names, "test"), "\n")
  local digits = #tostring(#names)
  for i, name in ipairs(names) do
    self._currentTestName = name
    local number = ("%" .. digits .. "d/%d "):format(i, #names)
    local dots = ("."):rep(LINE - 10 - 2 * digits - #tostring(name))
    local begin = ("%s%s %s "):format(number, tostring(name), dots)
    io.write(begin, "[WAIT]")
    io.flush()
    local verdict = self:_runOne(name)
    io.write("\r", begin, "[", verdict, "]")
    if verdict == "PASS" and self._warningCount[name] > 0 then io.write("\n", (" "):rep(LINE - 10), "[+warning]") end
    io.write("\n")
    io.flush()
    if self.earlyAbort and i < #names and (verdict == "ERROR" or verdict == "FAIL") then
      io.write("Aborting on first error, not all tests have been executed\n")
      break
    end
    collectgarbage()
  end
  self._currentTestName = ""
end

-- The number of names whose number in `counts` is not 0.
local function how_many(names, counts)
  local count = 0
  for _, name in ipairs(names) do
    if (counts[name] or 0) ~= 0 then count = count + 1 end
  end
  return count
end

function Tester:_report(names)
  self.countasserts = 0
  local skipped = 0
  for _, name in ipairs(names) do
    self.countasserts = self.countasserts + self.assertionPass[name] + self.assertionFail[name]
    if self.disabledTests[name] then skipped = skipped + 1 end
  end
  local warnings = how_many(names, self._warningCount) + (self._warningCount[""] or 0)
  io.write("Completed ", counted(self.countasserts, "assert"), " in ", counted(#names, "test"), " with ",
    counted(how_many(names, self.assertionFail), "failure"), " and ", counted(how_many(names, self.testError), "error"))
  if warnings > 0 then io.write(" and ", counted(warnings, "warning")) end
  if skipped > 0 then io.write((" and %d disabled"):format(skipped)) end
  io.write("\n")
  if self.summaryOnly then return end
  local dashes = ("-"):rep(LINE) .. "\n"
  if #self.errors + #self.warnings > 0 then io.write(dashes) end
  for _, list in ipairs{self.errors, self.warnings} do
    for _, text in ipairs(list) do io.write(text, "\n", dashes) end
  end
end

--- Runs all tests, or those whose names match a pattern or one of a list. Raises an error at the end if a test failed.
function Tester:run(patterns)
  local names = self:_chosen(patterns)
  self.assertionPass, self.assertionFail, self.testError = {}, {}, {}
  for _, name in ipairs(names) do
    self.assertionPass[name], self.assertionFail[name], self.testError[name], self._warningCount[name] = 0, 0, 0, 0
  end
  self:_runAll(names)
  self:_report(names)
  for _, name in ipairs(names) do
    if self.assertionFail[name] > 0 or self.testError[name] > 0 then
      error("An error was found while running tests!", 0)
    end
  end
  return 0
end

return module
