--- Servers in Lua: the library handles tables and optimizers, this program handles commands.
--
--     local node = polyverso.init{role = polyverso.MV_ROLE_SERVER}           -- or from the environment
--     local kv = kvstore.create("dist")
--     kvstore_server.KVStoreServer(kv, function(head, body) print(head, body) end):run()
--     node:shutdown()
--
-- A process that a DMLC tracker has started as a server or the scheduler (DMLC_ROLE) takes this role when it requires
-- polyverso.kvstore: it serves until all workers have finished, and exits. Set its controller before that, as
-- kvstore_server.controller.

local module = {}

---@class polyverso.KVStoreServer
local Server = {}
Server.__index = Server

--- A process that is only a server. Its run() executes the commands of store:send_command().
---@param kvstore polyverso.KVStore
---@param controller? fun(head: integer, body: string) an error in it becomes the sender's error, and is printed here. nil:
--- prints each command, as MXNet does
---@return polyverso.KVStoreServer
function module.KVStoreServer(kvstore, controller)
  require("polyverso.values").check_callable("KVStoreServer", "the controller", controller, true)
  local function name(head, body) print(("server %d, unknown command (%s, %s)"):format(kvstore:rank(), tostring(head), body)) end
  return setmetatable({kvstore = kvstore, controller = controller or module.controller or name}, Server)
end

--- Returns when all workers have finished.
function Server:run()
  local function execute(head, body)
    local ended, raised = pcall(self.controller, head, body)
    if ended then return end
    io.stderr:write("command ", tostring(head), ": ", tostring(raised), "\n")
    require("polyverso.capi").raise_again(raised)
  end
  require("polyverso.kvstore").run_server(execute, {handle = self.kvstore.node})
end

--- The whole run of a process that a DMLC tracker has started as server or scheduler. `kvstore` is the module
--- polyverso.kvstore.
---@param kvstore table the module polyverso.kvstore
function module.init(kvstore)
  local role = os.getenv("DMLC_ROLE")
  if role ~= "server" and role ~= "scheduler" then return end
  package.loaded["polyverso.kvstore"] = kvstore -- because its require() has not returned yet
  local node = require("polyverso").init()
  if node:server_id() >= 0 then module.KVStoreServer(kvstore.create("dist")):run() end
  node:shutdown()
  os.exit(0)
end

return module
