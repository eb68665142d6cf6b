-- A node of gossip_test.py, in Lua: see node.c.    node.lua NAME VALUE

local gossip = require("polyverso.gossip")

local name, value = arg[1], tonumber(arg[2])
local model = {}
for i = 1, 1000 do model[i] = value end
local node = gossip.open_text(("nodes: [{name: %s, host: 127.0.0.1, port: 0}]\ntimeout_ms: 20000"):format(name), name)
io.stdout:setvbuf("line")
print("listens " .. node:state().address:match(":(%d+)$"))
for line in io.lines() do
  local peer, port = line:match("^peer (%S+) (%d+)")
  if peer then
    node:add_peer(peer, "127.0.0.1", tonumber(port))
  else
    node:update_send({model}, 1)
    print("stepped " .. node:update_wait({model}, 1) .. " " .. model[1000])
  end
end
