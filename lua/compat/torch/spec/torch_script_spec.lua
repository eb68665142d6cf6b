-- The stand-in for Torch: printing, classes, command lines, timers.

require("torch")

local function shows(value, ...) assert.equal(table.concat({...}, "\n") .. "\n", tostring(value)) end

describe("printing", function()
  it("aligns whole numbers", function()
    shows(torch.Tensor{{1, -2, 3}, {40, 5, 6}},
      "  1  -2   3",
      " 40   5   6",
      "[torch.DoubleTensor of size 2x3]")
    shows(torch.ByteTensor{1, 200}, "   1", " 200", "[torch.ByteTensor of size 2]")
    shows(torch.zeros(2), " 0", " 0", "[torch.DoubleTensor of size 2]")
  end)

  it("gives fractions four digits", function()
    shows(torch.FloatTensor{0.5, 0.25}, " 0.5000", " 0.2500", "[torch.FloatTensor of size 2]")
    shows(torch.Tensor{{1.5, 22}}, "  1.5000  22.0000", "[torch.DoubleTensor of size 1x2]")
  end)

  it("puts a factor before what is large or small", function()
    shows(torch.Tensor{1e-4, 2e-4}, "0.0001 *", " 1.0000", " 2.0000", "[torch.DoubleTensor of size 2]")
    shows(torch.Tensor{{123456.5}, {250000}}, "100000 *", "  1.2346", "  2.5000", "[torch.DoubleTensor of size 2x1]")
    shows(torch.Tensor{0.5, 1e6}, " 5.0000e-01", " 1.0000e+06", "[torch.DoubleTensor of size 2]")
    shows(torch.Tensor{1e10}, " 1.0000e+10", "[torch.DoubleTensor of size 1]")
  end)

  it("breaks long rows", function()
    shows(torch.range(1, 30):view(1, 30),
      "Columns 1 to 20",
      "  1   2   3   4   5   6   7   8   9  10  11  12  13  14  15  16  17  18  19  20",
      "",
      "Columns 21 to 30",
      " 21  22  23  24  25  26  27  28  29  30",
      "[torch.DoubleTensor of size 1x30]")
  end)

  it("shows more dimensions as matrices, the first running fastest", function()
    shows(torch.range(1, 8):view(2, 1, 2, 2),
      "(1,1,.,.) = ",
      "  1  2",
      "  3  4",
      "",
      "(2,1,.,.) = ",
      "  5  6",
      "  7  8",
      "[torch.DoubleTensor of size 2x1x2x2]")
  end)

  it("shows views as what they are", function()
    shows(torch.Tensor{{1, 2}, {3, 4}}:t(), " 1  3", " 2  4", "[torch.DoubleTensor of size 2x2]")
    shows(torch.range(1, 100)[{{1, 2}}], " 1", " 2", "[torch.DoubleTensor of size 2]")
  end)

  it("shows what is empty", function()
    shows(torch.Tensor(), "[torch.DoubleTensor with no dimension]")
    shows(torch.LongStorage(), "", "[torch.LongStorage of size 0]")
  end)

  it("shows storages, and sizes, which are some", function()
    shows(torch.Tensor(2, 3):size(), "", " 2", " 3", "[torch.LongStorage of size 2]")
    shows(torch.FloatStorage{0.5, 1}, "", " 0.5000", " 1.0000", "[torch.FloatStorage of size 2]")
  end)

  it("shows infinity and NaN", function()
    assert.truthy(tostring(torch.Tensor{1 / 0, 1}):find("inf\n 1.0000e+00\n", 1, true))
    assert.truthy(tostring(torch.Tensor{{0 / 0, 1}}):find("nan 1.000000\n", 1, true))
  end)
end)

describe("torch.class", function()
  it("makes classes with parents", function()
    local Animal = torch.class("Animal")
    function Animal:__init(name) self.name = name end
    function Animal:speak() return self.name .. " says " .. self:sound() end
    function Animal:sound() return "nothing" end
    function Animal:__tostring__() return "<" .. self.name .. ">" end
    local Cow, parent = torch.class("Cow", "Animal")
    function Cow:__init(name)
      parent.__init(self, name)
      self.legs = 4
    end
    function Cow:sound() return "moo" end
    function Cow.__add__(a, b) return a.name .. b.name end

    local cow = _G.Cow("Berta")
    assert.equal("Berta says moo", cow:speak())
    assert.equal("Rex says nothing", _G.Animal("Rex"):speak())
    assert.equal(4, cow.legs)
    assert.equal("<Berta>", tostring(cow))
    assert.equal("BertaBerta", cow + cow)
    assert.equal("Cow", torch.type(cow))
    assert.equal("table", type(cow))
    assert.is_true(torch.isTypeOf(cow, "Animal"))
    assert.is_true(torch.isTypeOf(cow, _G.Animal))
    assert.is_false(torch.isTypeOf(_G.Animal("x"), "Cow"))
    assert.equal(parent, torch.getmetatable("Animal"))
    local bare = torch.factory("Cow")()
    assert.is_nil(bare.legs)
    assert.equal("moo", bare:sound())
    assert.has_error(function() torch.class("Cow") end)
    assert.has_error(function() torch.class("Calf", "Bull") end)
    assert.has_error(function() return cow - cow end)
    _G.Animal, _G.Cow = nil, nil
  end)

  it("puts constructors into tables", function()
    local module = {}
    torch.class("module.Thing", module)
    assert.equal("module.Thing", torch.type(module.Thing()))
    assert.has_error(function() torch.class("nowhere.Thing") end)
  end)

  it("lets methods be added to tensors", function()
    function torch.DoubleTensor.twice(tensor) return tensor * 2 end
    assert.same({2, 4}, torch.Tensor{1, 2}:twice():totable())
    rawset(torch.getmetatable("torch.DoubleTensor"), "twice", nil)
    assert.equal("torch.FloatTensor", torch.FloatTensor(2).new():type())
    assert.equal("torch.IntTensor", torch.factory("torch.IntTensor")():type())
  end)
end)

describe("torch.CmdLine", function()
  local cmd
  before_each(function()
    cmd = torch.CmdLine()
    cmd:text("Trains")
    cmd:argument("data", "the folder")
    cmd:option("-rate", 0.1, "learning rate")
    cmd:option("--name", "run", "its name")
    cmd:option("-fast", false, "hurry")
  end)

  -- The text that `call` prints, and pcall's results.
  local function printed(call, ...)
    local before, lines = print, {}
    _G.print = function(...) lines[#lines + 1] = table.concat({...}, "\t") end
    local results = {pcall(call, ...)}
    _G.print = before
    return table.concat(lines, "\n"), results[1], tostring(results[2])
  end

  it("reads options and arguments", function()
    assert.same({data = "mnist", rate = 0.1, name = "run", fast = false}, cmd:parse{"mnist"})
    assert.same({data = "mnist", rate = 0.5, name = "x", fast = true}, cmd:parse{"-rate", "0.5", "mnist", "-fast", "--name", "x"})
  end)

  it("explains itself where it can't", function()
    local cases = {{}, {"a", "b"}, {"a", "-rate", "quick"}, {"a", "-rate"}, {"a", "-unknown"}}
    local reasons = {"<data> is missing", 'invalid argument: "b"', "a number is expected", "needs a value", "-unknown"}
    for i, words in ipairs(cases) do
      local text, ended, failure = printed(cmd.parse, cmd, words)
      assert.is_false(ended)
      assert.truthy(failure:find(reasons[i], 1, true), failure)
      assert.truthy(text:find("Usage: script [options] <data>\nTrains\n  <data>   the folder\n  -rate    learning rate [0.1]", 1, true), text)
    end
    assert.has_error(function() cmd:option("rate", 1) end)
    assert.has_error(function() cmd:option("-rate", 1) end)
    assert.has_error(function() cmd:option("-other") end)
  end)

  it("names and logs runs", function()
    local values = cmd:parse{"mnist", "-rate", "0.2", "-fast"}
    assert.equal("run,fast=true,rate=0.2", cmd:string("run", values))
    assert.equal("run,rate=0.2", cmd:string("run", values, {fast = true}))
    assert.equal("run", cmd:string("run", cmd:parse{"mnist"}))
    local path, before = os.tmpname(), print
    cmd:silent()
    cmd:log(path, values)
    print("done", 1)
    _G.print = before
    local file = io.open(path)
    local text = file:read("*a")
    file:close()
    os.remove(path)
    assert.truthy(text:find("%[program started on .*\ndata\tmnist\nfast\ttrue\nname\trun\nrate\t0.2\ndone\t1\n$"), text)
  end)
end)

describe("torch.Timer", function()
  it("tells how long something took", function()
    local timer = torch.Timer()
    local begun = torch.tic()
    for _ = 1, 1e5 do math.sqrt(2) end
    local first = timer:time().real
    assert.is_true(first >= 0 and first < 60)
    local stopped = timer:stop():time().real
    assert.equal(stopped, timer:time().real)
    assert.is_true(timer:resume():time().real >= stopped)
    assert.is_true(timer:reset():time().real < 60)
    assert.is_true(torch.toc(begun) >= 0)
  end)
end)
