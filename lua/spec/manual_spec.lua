-- docs/lua.md lists the methods of every object: those that it names exist, and those that exist are named.

local polyverso = require("polyverso")
local tensor = require("polyverso.tensor")

local function sections()
  local file = assert(io.open("../docs/lua.md"))
  local text = file:read("*a"):match("\n## Objects and their methods\n(.-)\n## ")
  file:close()
  local found, title = {}, nil
  for line in text:gmatch("[^\n]+") do
    title = line:match("^%*%*An? (.-)%*%*") or line:match("^%*%*The (.-)%*%*") or title
    local cell = line:match("^| (`.-) |")
    for name in (title and cell or line:find("^%*%*A request") and line or ""):gsub("`t:", "`"):gmatch("`([%a_]+)%(") do
      found[title] = found[title] or {}
      found[title][name] = true
    end
  end
  return found
end

-- Methods that other files of this library call.
local INTERNAL = {
  node = {}, table = {}, group = {}, ["gossip node"] = {},
  store = {follow = true, set_factors = true, update = true, own = true},
  tensor = {info = true, row_sparse = true, handle = true, parts = true, to_dense = true, to_sparse = true},
}

describe("the manual", function()
  it("lists the methods of every object", function()
    local node = polyverso.init{log_level = "error"}
    local objects = {
      node = node, table = node:array{size = 2}, group = require("polyverso.group").open(node),
      store = require("polyverso.kvstore").create("local"), tensor = tensor.zeros({2}),
      ["gossip node"] = require("polyverso.gossip").open_text("nodes: [{name: one, host: 127.0.0.1, port: 0}]", "one"),
    }
    local manual = sections()
    for kind, object in pairs(objects) do
      local methods = kind == "tensor" and tensor.methods or getmetatable(object).__index
      for name in pairs(manual[kind]) do
        local exists = methods[name] or kind == "tensor" and tensor[name]
        assert.is_function(exists, ("%s:%s() of docs/lua.md does not exist"):format(kind, name))
      end
      for name, method in pairs(methods) do
        local is_public = type(method) == "function" and not name:find("^__") and name ~= "new" and name ~= "described"
        if is_public and not INTERNAL[kind][name] then
          assert.is_true(manual[kind][name], ("%s:%s() is missing in docs/lua.md"):format(kind, name))
        end
      end
    end
    objects["gossip node"]:close()
    objects.group:close()
    node:shutdown()
  end)
end)
