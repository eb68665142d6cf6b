-- Groups for specs: a cluster of one rank in this process, and scripts that run as the ranks of a cluster.

local group = require("polyverso.group")
local polyverso = require("polyverso")

local ranks = {}

--- A table with the node and the group of a cluster of one; each test of a describe() gets new ones.
function ranks.alone(before_each, after_each)
  local alone = {}
  before_each(function()
    alone.node = polyverso.init()
    alone.group = group.open(alone.node)
  end)
  after_each(function()
    alone.group:close()
    alone.node:shutdown()
  end)
  return alone
end

--- The interpreter's command.
ranks.INTERPRETER = jit and "luajit" or "lua" .. _VERSION:match("%d%.%d")

--- Runs a script as `count` processes, each of which prints one line; returns the lines by rank.
function ranks.lines(count, script)
  local path = os.tmpname()
  local file = assert(io.open(path, "w"))
  file:write(script)
  file:close()
  local pipe = assert(io.popen(("polyverso run -n %d -- %s %s 2>&1; echo status $?"):format(count, ranks.INTERPRETER, path)))
  local lines = {}
  for line in pipe:lines() do lines[#lines + 1] = line end
  pipe:close()
  os.remove(path)
  local text = table.concat(lines, "\n")
  assert(table.remove(lines) == "status 0", text)
  table.sort(lines) -- by their prefixes "[w0] " and so on
  for i, line in ipairs(lines) do lines[i] = line:match("^%[w%d+%] (.*)$") end
  return lines
end

return ranks
