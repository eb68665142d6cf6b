-- The global lapp: Penlight's, and the stand-in, on the same command lines.

local ranks = require("spec.ranks")

local HELP = [[
local options = lapp [=[
Trains a model.

   --nodeIndex       (default 1)     node index
   -n,--numNodes     (default 1)     nodes
   --learningRate    (default .1)    rate
   --name            (default mnist) a text
   --steps           (number)
   -v                                a flag
   <file>            (string)        data
]=]
print(options.nodeIndex + 1, options.numNodes, options.learningRate, options.name, options.steps, options.v, options.file, options[1])
]]

-- What a script prints, started with -l lapp; without Penlight unless `penlight`.
local function output(words, penlight, script)
  local path = os.tmpname()
  local file = assert(io.open(path, "w"))
  file:write(script or HELP)
  file:close()
  local hide = penlight and "" or [[-e 'package.preload["pl.lapp"] = function() error("not installed") end']]
  local pipe = io.popen(("%s %s -l lapp %s %s 2>&1"):format(ranks.INTERPRETER, hide, path, words))
  local text = pipe:read("*a"):gsub("%.0%f[%s]", "")
  pipe:close()
  os.remove(path)
  return text
end

describe("lapp", function()
  local both = pcall(require, "pl.lapp") and {true, false} or {false}

  it("parses command lines", function()
    for _, penlight in ipairs(both) do
      assert.equal("2\t1\t0.1\tmnist\t5\tfalse\tdata.t7\tmore\n", output("--steps 5 data.t7 more", penlight))
      assert.equal("4\t2\t0.5\tcifar\t7\ttrue\tx\tnil\n", output("--nodeIndex 3 -n 2 --learningRate=0.5 --name cifar -v --steps=7 x", penlight))
    end
  end)

  it("refuses what the help text does not have", function()
    for words, reason in pairs{["--steps"] = "needs a value", ["--stepps 5 x"] = 'unknown option "--stepps"', ["--steps five x"] = "must be a number",
                               ["--steps 5"] = "<file> is missing", ["x"] = "--steps is missing"} do
      local text = output(words)
      assert.truthy(text:find(reason, 1, true), text)
      assert.truthy(text:find("Trains a model.", 1, true))
    end
    assert.truthy(output("--help"):find("Trains a model.", 1, true))
  end)

  it("begins distlearn's scripts", function()
    for _, penlight in ipairs(both) do
      assert.equal("1\t1\n", output("--nodeIndex 1", penlight, [[
        local opt = lapp "Trains.\n   --nodeIndex  (default 1)\n   --numNodes  (default 1)\n"
        local tree = require 'ipc.LocalhostTree'(opt.nodeIndex, opt.numNodes)
        require 'distlearn.AllReduceSGD'(tree)
        print(tree.nodeIndex, tree.numNodes)
      ]]))
    end
  end)
end)
