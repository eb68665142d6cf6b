--- torch-ipc's primitives: servers and clients, threads with one Lua state each, and queues between them.
--
--     local ipc = require 'libipc'
--     local server, port = ipc.server('127.0.0.1')
--     local workers = ipc.map(2, function(port, id)
--       local client = require('libipc').client('127.0.0.1', port)
--       client:send({id = id})
--       client:close()
--       return id * id
--     end, port)
--     server:clients(2, function(client) print(client:recv().id) end)
--     print(workers:join())      -- 1 4
--
-- Messages hold nil, booleans, numbers, strings, nested tables, and Torch's tensors and storages. Between threads they
-- also hold functions, clients, and tensors by reference. docs/coming-from-distlearn.md lists the differences from
-- torch-ipc.

local native = require("polyverso.ipc")
require("polyverso.ipc_values")

---@class ipc.Client
---@field send fun(self: ipc.Client, value: any)
---@field recv fun(self: ipc.Client): any
---@field recvAsync fun(self: ipc.Client): any
---@field id fun(self: ipc.Client, id?: integer): integer?
---@field tag fun(self: ipc.Client, tag?: string): string?
---@field close fun(self: ipc.Client)

---@class ipc.Server
---@field close fun(self: ipc.Server)
local Server = native.server_methods

---@class ipc.Workers
---@field join fun(self: ipc.Workers): any ...
---@field checkErrors fun(self: ipc.Workers)

---@class ipc.WorkQueue
---@field write fun(self: ipc.WorkQueue, ...: any)
---@field writeup fun(self: ipc.WorkQueue, ...: any)
---@field read fun(self: ipc.WorkQueue, doNotBlock?: boolean): any
---@field drain fun(self: ipc.WorkQueue)
---@field close fun(self: ipc.WorkQueue)

-- Like torch-ipc, accepts numbers also as text, because command lines contain text.
local function number(value) return tonumber(value) or value end

--- clients(n, f) waits for n clients; clients(f [, tag] [, invert]) takes the present ones, only those with the tag if
--- one is given, in the order of their ids or in reverse. Calls f with each client and returns their number.
---@param first integer|fun(client: ipc.Client)
---@param second? string|fun(client: ipc.Client)
---@param third? any
---@return integer
function Server:clients(first, second, third)
  local visit, tag, inverted = first, nil, nil
  if type(first) == "number" then
    visit = second
    self:wait(first)
  elseif type(second) == "string" then
    tag, inverted = second, third
  else
    inverted = second
  end
  if type(visit) ~= "function" then error("clients(n, f) or clients(f [, tag] [, invert]): f must be a function, not a " .. type(visit), 2) end
  local clients = self:list(tag, inverted ~= nil and inverted ~= 0 and inverted ~= false)
  for _, client in ipairs(clients) do visit(client) end
  return #clients
end

--- Sends a value to all clients, or only to those with this tag.
---@param value any
---@param tag? string
function Server:broadcast(value, tag)
  for _, client in ipairs(self:list(tag)) do client:send(value) end
end

--- Returns the next message of any client, or of any client with this tag, and the client.
---@param tag? string
---@return any message
---@return ipc.Client
function Server:recvAny(tag)
  local clients = self:list(tag)
  local client = clients[native.ready(clients)]
  return client:recv(), client
end

return {
  ---@type fun(host?: string|integer, port?: integer|string): ipc.Server, integer
  server = function(host, port)
    if port == nil and tonumber(host) then host, port = nil, host end
    return native.server(host, number(port))
  end,
  ---@type fun(host: string|integer, port?: integer|string): ipc.Client
  client = function(host, port)
    if port == nil then return native.client(number(host)) end
    return native.client(host, number(port))
  end,
  ---@type fun(threads: integer, f: function, ...: any): ipc.Workers
  map = native.map,
  ---@type fun(name: string): ipc.WorkQueue the queue of this name in this process
  workqueue = native.workqueue,
  ---@type fun(accepts: boolean)
  acceptFunctions = native.acceptFunctions,
  ---@type fun(): integer
  getpid = native.getpid,
  ---@type fun(): integer
  getppid = native.getppid,
  ---@type fun(seconds: number)
  sleep = native.sleep,
}
