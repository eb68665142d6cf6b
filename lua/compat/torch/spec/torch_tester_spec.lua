-- The stand-in for Torch: TestSuite and Tester.

require("torch")

-- The text that a tester writes in a run, whether the run succeeded, and its error.
local function run(tester, ...)
  local write, written = io.write, {}
  io.write = function(...)
    for _, text in ipairs{...} do written[#written + 1] = tostring(text) end
  end
  local ended, failure = pcall(tester.run, tester, ...)
  io.write = write
  return table.concat(written), ended, failure
end

-- A tester whose assertions return the failure that they would record.
local function probe()
  local tester = torch.Tester()
  tester._success = function() return true end
  tester._failure = function(_, message) return false, message end
  return tester
end

describe("torch.TestSuite", function()
  it("refuses what is no new test", function()
    local suite = torch.TestSuite()
    function suite.one() end
    assert.equal("function", type(suite.one))
    assert.error_matches(function() function suite.one() end end, "Test one is already defined%.")
    assert.error_matches(function() suite.two = {} end, "Nested tables of tests are not supported")
    assert.error_matches(function() suite.two = 2 end, "Only functions are supported")
  end)
end)

describe("torch.Tester", function()
  local tester
  before_each(function() tester = torch.Tester() end)

  it("runs tests and sums up", function()
    local suite = torch.TestSuite()
    function suite.good()
      tester:eq(1, 1)
      tester:assert(true, "fine")
    end
    function suite.also() tester:assertTensorEq(torch.ones(2), torch.ones(2), 1e-9) end
    assert.equal(tester, tester:add(suite))
    local text, ended = run(tester)
    assert.is_true(ended)
    assert.truthy(text:find("Running 2 tests\n", 1, true))
    assert.truthy(text:find("1/2 also " .. ("."):rep(64) .. " [WAIT]\r", 1, true), text)
    assert.truthy(text:find("2/2 good %.+ %[PASS%]\n"))
    assert.truthy(text:find("Completed 3 asserts in 2 tests with 0 failures and 0 errors\n", 1, true))
    assert.equal(3, tester.countasserts)
  end)

  it("reports failures and errors, and fails then", function()
    tester:add(torch.TestSuite())
    tester:add(function() tester:eq({1, {2}}, {1, {3}}, "the second") end, "fails")
    tester:add(function() error("broken") end, "breaks")
    local text, ended, failure = run(tester)
    assert.is_false(ended)
    assert.equal("An error was found while running tests!", failure)
    assert.truthy(text:find("[FAIL]", 1, true))
    assert.truthy(text:find("[ERROR]", 1, true))
    assert.truthy(text:find("Completed 1 assert in 2 tests with 1 failure and 1 error\n", 1, true))
    assert.truthy(text:find("fails\nthe second\nAt table location 2.1: EQ failed: 2 ~= 3", 1, true))
    assert.truthy(text:find("torch_tester_spec.lua", 1, true))
    assert.truthy(text:find("breaks\n Function call failed\n", 1, true))
    assert.truthy(text:find(("-"):rep(80), 1, true))
  end)

  it("runs those that are named", function()
    local ran = {}
    for _, name in ipairs{"first", "second", "third"} do tester:add(function() ran[#ran + 1] = name end, name) end
    run(tester, "second")
    run(tester, {"first", "third"})
    assert.same({"second", "first", "third"}, ran)
    local _, ended, failure = run(tester, "fourth")
    assert.is_false(ended)
    assert.truthy(failure:find("Couldn't find test 'fourth'", 1, true))
  end)

  it("leaves out what is disabled", function()
    local ran = 0
    tester:add(function() ran = ran + 1 end, "one"):add(function() ran = ran + 10 end, "two"):disable("one")
    local text = run(tester)
    assert.equal(10, ran)
    assert.truthy(text:find("[SKIP]", 1, true))
    assert.truthy(text:find("and 1 disabled", 1, true))
    assert.has_error(function() tester:disable{"three"} end)
  end)

  it("sets up and tears down", function()
    local calls = {}
    tester:add(function(name) calls[#calls + 1] = "up " .. name end, "_setUp")
    tester:add(function(name) calls[#calls + 1] = "down " .. name end, "_tearDown")
    tester:add(function() calls[#calls + 1] = "test" end, "one")
    run(tester)
    assert.same({"up one", "test", "down one"}, calls)
  end)

  it("stops early, rethrows, and sums up only, if told so", function()
    local ran = 0
    for _, name in ipairs{"a", "b"} do
      tester:add(function()
        ran = ran + 1
        tester:assert(false, "long explanation")
      end, name)
    end
    tester:setEarlyAbort(true)
    tester:setSummaryOnly(true)
    local text = run(tester)
    assert.equal(1, ran)
    assert.truthy(text:find("Aborting on first error", 1, true))
    assert.falsy(text:find("long explanation", 1, true))
    tester:setRethrowErrors(true)
    local _, _, failure = run(tester)
    assert.truthy(failure:find("long explanation", 1, true))
  end)

  it("warns", function()
    tester:add{one = function() tester:assert(1) end, two = function()
      tester:assertTensorEq(torch.Tensor{{1}}, torch.Tensor{1})
    end}
    local text, ended = run(tester)
    assert.is_true(ended)
    assert.truthy(text:find("and 3 warnings", 1, true))
    assert.truthy(text:find("Should use TestSuite rather than plain lua table", 1, true))
    assert.truthy(text:find("but different dimensions", 1, true))
  end)

  it("refuses tests that it can't run", function()
    assert.has_error(function() tester:add(1) end)
    assert.has_error(function() tester:add({{}}) end)
    tester:add(function() end, "one")
    assert.has_error(function() tester:add(function() end, "one") end)
  end)

  it("asserts", function()
    local p = probe()
    local one, function_ends, function_fails = torch.Tensor{1}, function() end, function() error("no luck") end
    local holds = {
      {"eq", one, one}, {"eq", {one, 1}, {one, 1}}, {"eq", {{{one}}}, {{{one}}}}, {"eq", "hi", "hi"},
      {"eq", torch.Storage{1}, torch.Storage{1}}, {"eq", {one}, {one + 1e-10}, 1e-9}, {"eq", 1, 1.5, 0.5, "near"},
      {"eq", 1, 1.5, "near", 0.5}, {"ne", one, 1}, {"ne", torch.Storage{1}, torch.Storage{1, 2}},
      {"ne", torch.FloatStorage{1}, torch.LongStorage{1}}, {"ne", {1}, {1, 2}}, {"ne", torch.ones(2), torch.ones(1, 2)},
      {"ne", torch.FloatTensor{1}, one}, {"lt", 1, 2}, {"gt", 2, 1}, {"le", 1, 1}, {"ge", 1, 1},
      {"assertlt", 1, 2}, {"assertgt", 2, 1}, {"assertle", 1, 2}, {"assertge", 2, 1}, {"asserteq", 1, 1},
      {"assertne", 1, 2}, {"assertalmosteq", 1, 1 + 1e-17}, {"assertalmosteq", 1, 2, 1},
      {"assertTensorEq", one, torch.Tensor{1 + 1e-9}, 1e-6}, {"assertTensorNe", one, torch.Tensor{2}},
      {"assertTensorEq", torch.Tensor(), torch.Tensor()},
      {"assertTableEq", {1, {2, a = 3}}, {1, {2, a = 3}}}, {"assertTableNe", {1}, {2}},
      {"assertError", function_fails}, {"assertNoError", function_ends},
      {"assertErrorMsg", function() error("exact", 0) end, "exact"}, {"assertErrorPattern", function_fails, "luck"},
      {"assertErrorObj", function() error{code = 5} end, function(failure) return failure.code == 5 end},
      {"assert", true},
    }
    for i, case in ipairs(holds) do
      assert.is_true((p[case[1]](p, (unpack or table.unpack)(case, 2))), ("%d: %s"):format(i, case[1]))
    end
  end)

  it("refutes", function()
    local p = probe()
    local one = torch.Tensor{1}
    local fails = {
      {"eq", one, 1}, {"eq", {{{one}}}, {{one}}}, {"eq", "one", 1}, {"eq", {one}, {one + 1e-10}}, {"eq", {1}, {1, 2}},
      {"ne", {1}, {1}}, {"ne", one, one:clone()}, {"ne", 1, 1}, {"ne", "a", "a"}, {"lt", 1, 1}, {"gt", 1, 1}, {"le", 2, 1},
      {"ge", 1, 2}, {"asserteq", 1, 2}, {"assertne", 1, 1}, {"assertalmosteq", 1, 2}, {"assertTensorEq", one, torch.Tensor{2}},
      {"assertTensorNe", one, one}, {"assertTableEq", {1}, {}}, {"assertTableNe", {1}, {1}},
      {"assertError", function() end}, {"assertNoError", function() error("no") end},
      {"assertErrorPattern", function() error("no") end, "yes"}, {"assert", false, "why"},
    }
    for i, case in ipairs(fails) do
      local held, message = p[case[1]](p, (unpack or table.unpack)(case, 2))
      assert.is_false(held, ("%d: %s"):format(i, case[1]))
      assert.equal("string", type(message))
    end
    assert.has_error(function() p:assertTensorEq(one, 2) end)
    assert.has_error(function() p:assertTableEq(one, {}) end)
    assert.has_error(function() p:eq(1, 1, -1) end)
    assert.has_error(function() p:assert(true, "a", "b") end)
  end)
end)
