--- Model parameters shared between processes, in any language. Lua 5.1, LuaJIT and 5.4.
--
--     local polyverso = require("polyverso")
--     local node = polyverso.init{sync = true}
--     local weights = node:matrix{rows = 10, cols = 64}
--     weights:add(gradient)            -- a table of row tables, a flat table, or FFI memory of the table's type
--     local now = weights:get()        -- a table of row tables
--     node:shutdown()
--
-- If a script fails between init() and shutdown(), the other processes should not continue with wrong sums. So let
-- polyverso.with{...} or, in Lua 5.4, `local node <close>` end the node:
--
--     polyverso.with({sync = true}, function(node) train(node) end)
--
-- The functions of polyverso.h are here under their own names: polyverso.mv_table_add(table, data, options). Where C
-- takes (data, count, dtype), Lua takes one argument: a table of numbers, an FFI array, {pointer = cdata, count = n} or
-- a string of bytes, which tables' methods refuse. Results are written into a table ({n = count} gives the length) or
-- into FFI memory. The numbers of a table have the dtype of the mv_table, or that of their field dtype =
-- polyverso.MV_F64. Row ids count from 0, as in C.
--
-- Errors are tables {code, name, family, text, where}; tostring() gives their message. The interpreter of Lua 5.1
-- prints only strings: there, an error that no pcall() in the script will catch is raised as its message instead, also
-- by error(failure) and assert(pcall(...)), which this module extends there. last_error() returns the table in both
-- cases.

local capi = require("polyverso.capi")
local Node = require("polyverso.node")
local objects = require("polyverso.objects")
local values = require("polyverso.values")

local polyverso = {}
for name, value in pairs(capi) do
  if name:find("^[mk]v_") or name:find("^[MK]V_") then polyverso[name] = value end
end

--- Both end a node; nodes and tables of the same handle learn of it.
---@param node integer an mv_node; 0: the node of init()
function polyverso.mv_shutdown(node)
  capi.mv_shutdown(node)
  objects.shut(node)
end

--- Like mv_shutdown(), for a program that has failed: the other processes' errors have the reason.
---@param node integer an mv_node; 0: the node of init()
---@param reason? string
function polyverso.mv_abort(node, reason)
  capi.mv_abort(node, reason)
  objects.shut(node, "after abort")
end

--- The last error that this library has raised in this Lua state, as a table {code, name, family, text, where}; or nil.
---@return polyverso.Error?
function polyverso.last_error() return capi.last_error() end

-- mv_init_options as a table. log_level is not a field of it, and moves into its text.
local function options(settings)
  if settings ~= nil and type(settings) ~= "table" then
    capi.raise(capi.MV_EINVAL, "the settings must be a table, such as {sync = true}, not a " .. type(settings))
  end
  local sync = settings and settings.sync
  if type(sync) == "string" and not tonumber(sync) then
    capi.raise(capi.MV_EINVAL, ('polyverso.init: sync is true or false, not "%s"'):format(sync))
  end
  local moved
  for key, value in pairs(settings or {}) do
    moved = moved or {}
    if key ~= "log_level" then moved[key] = value end
  end
  if settings and settings.log_level then
    moved.text = ("%s log_level=%s"):format(settings.text or "", settings.log_level)
  end
  return moved
end

--- Joins the cluster that the settings or the environment describe, and returns a node when all processes of the
--- cluster have joined.
---@param settings? polyverso.Settings fields of mv_init_options and log_level; nil = all from the environment
---@return polyverso.Node
function polyverso.init(settings)
  if settings == polyverso then capi.raise(capi.MV_EINVAL, "polyverso.init is a function: call it with a dot, polyverso.init(...)") end
  capi.mv_init(options(settings))
  return Node.new(0)
end

-- Ends the node of with(), and returns what the function has returned, or raises its error again.
local function finish(node, ended, ...)
  if not ended then
    pcall(node.abort, node, (...))
    capi.raise_again((...))
  end
  if not objects.end_of(node) then objects.end_block(node) end
  return ...
end

--- Calls work(node) with the node of init(settings), and returns its results. Afterwards it shuts the node down; after
--- an error it aborts instead, so that the other processes learn the reason, and raises the error again. In Lua 5.4,
--- `local node <close> = polyverso.init()` does the same for a block.
---@param settings? polyverso.Settings may be left out
---@param work fun(node: polyverso.Node): ...
---@return any ... the results of work
function polyverso.with(settings, work)
  if work == nil and type(settings) == "function" then settings, work = nil, settings end
  values.check_callable("polyverso.with", "the last argument", work)
  local node = polyverso.init(settings)
  return finish(node, pcall(work, node))
end

--- Opens a further node in this process, for tests and for several clusters at once.
---@param settings? polyverso.Settings
---@return polyverso.Node
function polyverso.open_node(settings)
  return Node.new(capi.mv_node_open(options(settings)))
end

--- The detected setup and advice on what does not work, as JSON text; docs/operations.md describes its fields. It
--- describes the running node, or, without one, what init() would do.
---@param how? {reach: boolean} {reach = true}: only the connection to the master that POLYVERSO_MASTER names
---@return string json
function polyverso.doctor(how)
  return capi.mv_doctor_text(0, capi.MV_JSON + (how and how.reach and capi.MV_REACH or 0))
end

--- The content of a checkpoint, of a directory of checkpoints, or of one of their files, as JSON text: tables with
--- their specs, files, sizes, checksums, and "damage", a description of any damage. Needs no node.
---@param path string
---@return string json
function polyverso.inspect_checkpoint(path) return capi.mv_checkpoint_inspect(path) end

return polyverso
