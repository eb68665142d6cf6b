-- How scripts leave a cluster: what the others hear after errors, exits, and the ends of blocks.

local polyverso = require("polyverso")
local ranks = require("spec.ranks")

local IN_NODE = "return pcall(node.barrier, node)"
local IN_GROUP = 'local group = require("polyverso.group").open(node) return pcall(group.barrier, group)'

-- What two workers print when worker 1 runs `script`, and worker 0 waits for it in a barrier of the node, or of a group.
local function heard(script, waits)
  local path = os.tmpname()
  local file = assert(io.open(path, "w"))
  file:write([[
    local polyverso = require("polyverso")
    if os.getenv("POLYVERSO_RANK") == "0" then
      local node = polyverso.init{log_level = "off"}
      local function wait() ]] .. (waits or IN_NODE) .. [[ end
      local ended, failure = wait()
      print("barrier: " .. (ended and "ended" or failure.name .. " " .. failure.text))
      if ended then node:shutdown() else node:abort() end
      os.exit(0)
    end
  ]] .. script)
  file:close()
  local command = "timeout 60 polyverso run -n 2 --keep-going --set log_level=off -- %s %s 2>&1"
  local pipe = assert(io.popen(command:format(ranks.INTERPRETER, path)))
  local text = pipe:read("*a")
  pipe:close()
  os.remove(path)
  return text
end

local function lost(reason, script, waits)
  local text = heard(script, waits)
  local line = text:match("%[w0%] barrier: ([^\n]*)")
  assert.truthy(line and line:find("MV_EPEERLOST", 1, true) and line:find(reason, 1, true), text)
  assert.equal(1, select(2, line:gsub("rank 1, pid", "")), line)
  return text
end

describe("a script that fails", function()
  it("in polyverso.with() tells the others why, and the user", function()
    local text = lost("a wrong rate", [[
      polyverso.with({log_level = "off"}, function(node)
        error("a wrong rate")
      end)
    ]])
    assert.matches("%[w1%][^\n]*:%d+: a wrong rate", text)
    text = lost('MV_EINVAL: unknown option "tiemout"', "polyverso.with(function(node) node:barrier{tiemout = 5} end)")
    assert.matches('%[w1%][^\n]*:%d+: MV_EINVAL: unknown option "tiemout"', text)
    assert.is_nil(text:find("not a string", 1, true))
  end)

  if _VERSION == "Lua 5.4" then
    it("in a block with a node to close tells the others why", function()
      -- The interpreter adds a traceback to the error, which the others have no use for.
      lost("a wrong rate (rank 1", 'local node <close> = polyverso.init() error("a wrong rate")')
      lost("in a table", [[
        local failure = setmetatable({}, {__tostring = function() return "in a table" end})
        local ended = pcall(function() local node <close> = polyverso.init() error(failure) end)
        os.exit(0)
      ]])
    end)
  end

  it("with a group open tells the ranks that wait in the group why", function()
    lost("a wrong rate", [[
      polyverso.with({log_level = "off"}, function(node)
        local group = require("polyverso.group").open(node)
        error("a wrong rate")
      end)
    ]], IN_GROUP)
    if _VERSION ~= "Lua 5.4" then return end
    lost("a wrong rate", [[
      local node <close> = polyverso.init{log_level = "off"}
      local t <close> = node:keyvalue{}
      local group <close> = require("polyverso.group").open(node)
      local sgd <close> = require("polyverso.distlearn").AllReduceSGD(group)
      error("a wrong rate")
    ]], "node:keyvalue{} " .. IN_GROUP)
  end)

  if _VERSION == "Lua 5.4" then
    it("in a group's block, and goes on, has left the group with its error", function()
      lost("a wrong rate; the group is broken", [[
        polyverso.with({log_level = "off"}, function(node)
          local ended = pcall(function()
            local group <close> = require("polyverso.group").open(node)
            error("a wrong rate")
          end)
          assert(not ended)
          pcall(node.barrier, node) -- worker 0 never comes here
        end)
      ]], IN_GROUP)
    end)
  end

  it("or exits with a status is lost", function()
    lost("exit status 1", 'polyverso.init() error("nobody catches this")')
    lost("exit status 3", "polyverso.init() os.exit(3)")
    lost("no rate was given", 'polyverso.init():abort("no rate was given")')
    lost("two lines", 'polyverso.init():abort("two\\nlines")')
  end)
end)

describe("a script that ends well", function()
  it("is shut down", function()
    local scripts = {
      "polyverso.with(function(node) node:barrier() end)",
      "polyverso.with({sync = false}, function(node) node:barrier() node:shutdown() end)",
      "local node = polyverso.init() node:barrier()",
      "local node = polyverso.init() node:barrier() os.exit(0)",
    }
    if _VERSION == "Lua 5.4" then scripts[#scripts + 1] = "do local node <close> = polyverso.init() node:barrier() end" end
    for _, script in ipairs(scripts) do
      local text = heard(script)
      assert.truthy(text:find("[w0] barrier: ended", 1, true), text)
      assert.is_nil(text:find("status", 1, true), text)
    end
  end)
end)

if _VERSION == "Lua 5.4" then
  describe("a block", function()
    it("closes the objects that it declares", function()
      local node = polyverso.init{log_level = "error"}
      local seen = assert(load([[
        local node, seen = ..., {}
        do
          local t <close> = node:array{size = 2}
          local group <close> = require("polyverso.group").open(node)
          local sgd <close> = require("polyverso.distlearn").AllReduceSGD(group)
          local kv <close> = require("polyverso.kvstore").create("local")
          local gossip <close> = require("polyverso.gossip").open_text("nodes: [{name: one, host: 127.0.0.1, port: 0}]", "one")
          local closed <close> = node:open(t.name)
          closed:close()
          seen = {t, group, kv, gossip, closed}
        end
        return seen
      ]]))(node)
      for _, object in ipairs(seen) do assert.matches("after [cf]", tostring(object)) end
      node:shutdown()
    end)
  end)
end

describe("objects", function()
  it("may be closed twice", function()
    local node = polyverso.init{log_level = "error"}
    local t, group = node:array{size = 2}, require("polyverso.group").open(node)
    local kv = require("polyverso.kvstore").create("local")
    local gossip = require("polyverso.gossip").open_text("nodes: [{name: one, host: 127.0.0.1, port: 0}]", "one")
    for _ = 1, 2 do
      t:close()
      group:close()
      kv:free()
      gossip:close()
    end
    node:shutdown()
  end)
end)

describe("polyverso.with", function()
  it("returns what the function returns, and ends the node", function()
    local seen
    local results = {polyverso.with({log_level = "error"}, function(node)
      seen = node
      return 1, nil, "three"
    end)}
    assert.same({1, nil, "three"}, results)
    assert.equal("<polyverso.Node worker 0 of 1, async, 0 tables, after shutdown>", tostring(seen))
    local ended, failure = pcall(polyverso.with, {log_level = "off"}, function(node)
      seen = node
      error({code = 5})
    end)
    assert.is_false(ended)
    assert.same({code = 5}, failure)
    assert.matches("after abort>$", tostring(seen))
    assert.matches("this node: node:rank%(%) after abort", select(2, pcall(seen.rank, seen)).text)
    seen:abort("again")
    assert.has_error(function() polyverso.with({log_level = "off"}, 5) end)
    polyverso.with(function() end) -- a new node of this process
  end)
end)

if jit then -- the others have no fork()
  describe("a forked child", function()
    it("leaves the block of its parent's node without a word", function()
      local lines = ranks.lines(1, [[
        local ffi = require("ffi")
        ffi.cdef("int fork(void); int waitpid(int, int *, int);")
        local is_child = false
        require("polyverso").with({log_level = "error"}, function(node)
          local t = node:array{size = 1, init = {7}}
          local pid, status = ffi.C.fork(), ffi.new("int[1]")
          is_child = pid == 0
          if is_child then return end
          ffi.C.waitpid(pid, status, 0)
          print(status[0], t:get()[1])
        end)
        if is_child then os.exit(0) end
      ]])
      assert.same({"0\t7"}, lines)
    end)
  end)
end
