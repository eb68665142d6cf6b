--- Model parameters shared between processes, in any language. Lua 5.1, LuaJIT and 5.4.
--
--     local polyverso = require("polyverso")
--     local node = polyverso.init{sync = true}
--     local weights = node:matrix{rows = 10, cols = 64}
--     weights:add(gradient)            -- a table of row tables, a flat table, or FFI memory of the table's type
--     local values = weights:get()     -- a table of row tables
--     node:shutdown()
--
-- The functions of polyverso.h are here under their own names: polyverso.mv_table_add(table, data, options). Where C
-- takes (data, count, dtype), Lua takes one argument: a table of numbers, an FFI array, {pointer = cdata, count = n} or
-- a string of bytes. Results are written into a table ({n = count} gives the length) or into FFI memory. The numbers of
-- a table have the dtype of the mv_table, or that of their field dtype = polyverso.MV_F64. Row ids count from 0, as in
-- C.
-- Errors are tables {code, name, family, text, where}; tostring() gives their message.

local capi = require("polyverso.capi")
local Node = require("polyverso.node")

local polyverso = {}
for name, value in pairs(capi) do
  if name:find("^[mk]v_") or name:find("^[MK]V_") then polyverso[name] = value end
end

-- mv_init_options as a table. log_level is not a field of it, and moves into its text.
local function options(settings)
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
-- cluster have joined.
-- @param settings fields of mv_init_options (sync, role, rank, nodes, master, ...) and log_level; nil = all from the
-- environment
function polyverso.init(settings)
  capi.mv_init(options(settings))
  return Node.new(0)
end

--- Opens a further node in this process, for tests and for several clusters at once.
function polyverso.open_node(settings)
  return Node.new(capi.mv_node_open(options(settings)))
end

--- The detected setup and advice on what does not work, as JSON text; docs/operations.md describes its fields. It
-- describes the running node, or, without one, what init() would do.
-- @param how {reach = true}: only the connection to the master that POLYVERSO_MASTER names; or nil
function polyverso.doctor(how)
  return capi.mv_doctor_text(0, capi.MV_JSON + (how and how.reach and capi.MV_REACH or 0))
end

--- The content of a checkpoint, of a directory of checkpoints, or of one of their files, as JSON text: tables with
-- their specs, files, sizes, checksums, and "damage", a description of any damage. Needs no node.
function polyverso.inspect_checkpoint(path) return capi.mv_checkpoint_inspect(path) end

return polyverso
