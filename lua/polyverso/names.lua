--- Names in messages: those of Lua's functions, for which the library's messages have C's; and guesses for misspelt
-- ones. Internal.
--
-- The rule is by prefix: mv_table_get is table:get, kv_push is store:push, mv_barrier is node:barrier. The lists below
-- have the prefixes and the exceptions.

local names = {}

local PREFIXES = {
  {"mv_table_", "table:"}, {"mv_device_", "polyverso.mv_device_"}, {"mv_tensor_", "tensor:"}, {"mv_request_", "request:"}, {"mv_gossip_", "gossip:"}, {"mv_group_", "group:"},
  {"mv_allreduce", "group:allreduce"}, {"mv_reduce", "group:reduce"}, {"mv_broadcast", "group:broadcast"}, {"mv_allgather", "group:allgather"},
  {"mv_gather", "group:gather"}, {"mv_scatter", "group:scatter"}, {"mv_alltoall", "group:alltoall"}, {"mv_send", "group:send"},
  {"mv_recv", "group:recv"},
  {"mv_sgd_", "AllReduceSGD:"}, {"mv_ea_", "AllReduceEA:"}, {"mv_async_ea_", "AsyncEA:"}, {"mv_local_sgd_", "LocalSGD:"},
  {"mv_compressed_", "CompressedAllReduce:"}, {"mv_strategy_", "strategy:"}, {"mv_checkpoint_", "node:"}, {"kv_", "store:"}, {"mv_", "node:"},
}

local EXCEPTIONS = {
  mv_init = "polyverso.init", mv_init_text = "polyverso.init", mv_init_options = "polyverso.init", mv_init_args = "polyverso.mv_init_args",
  mv_node_open = "polyverso.open_node", mv_last_error = "polyverso.last_error", mv_checkpoint_inspect = "polyverso.inspect_checkpoint",
  mv_log_level_set = "polyverso.mv_log_level_set", mv_status_text = "node:status", mv_metrics_text = "node:metrics",
  mv_trace_text = "node:trace", mv_doctor_text = "node:doctor", mv_table_create = "node:array", mv_table_open = "node:open",
  mv_table_list = "node:tables", mv_table_describe = "table:info", mv_tensor_create = "tensor.zeros", mv_tensor_from = "tensor.copy_of",
  mv_tensor_range = "tensor.range", mv_tensor_uniform = "tensor.uniform", mv_tensor_normal = "tensor.normal", mv_tensor_view = "tensor.view",
  mv_tensor_sparse = "tensor.sparse", mv_tensor_create_on = "tensor.zeros", mv_tensor_describe = "tensor:info", mv_tensor_data = "tensor:pointer", mv_tensor_text = "tostring(tensor)",
  mv_group_open = "group.open", mv_group_open_host = "group.of_host", mv_group_join = "group.join", mv_group_describe = "group:info", mv_allreduce_drain = "group:drain",
  mv_alltoall_counts = "group:alltoall", mv_cluster_drain = "node:drain", mv_cluster_resize = "node:resize", mv_membership_next = "node:next_event",
  mv_custom_begin = "group:allreduce_custom", mv_custom_next = "group:allreduce_custom", mv_custom_done = "group:allreduce_custom",
  mv_custom_end = "group:allreduce_custom", mv_request_test = "request:done", mv_gossip_open = "gossip.open",
  mv_gossip_open_text = "gossip.open_text", mv_gossip_status_text = "gossip.status", mv_gossip_state_text = "gossip:state",
  mv_gossip_metrics_text = "gossip:metrics", mv_gossip_add = "gossip:publish", mv_gossip_add_shaped = "gossip:publish",
  mv_sgd_open = "distlearn.AllReduceSGD", mv_sgd_sum_and_normalize = "AllReduceSGD:sum_and_normalize_gradients",
  mv_sgd_synchronize = "AllReduceSGD:synchronize_parameters", mv_ea_open = "distlearn.AllReduceEA",
  mv_ea_average = "AllReduceEA:average_parameters", mv_async_ea_open = "distlearn.AsyncEA",
  mv_async_ea_average = "AsyncEA:average_parameters", mv_local_sgd_open = "distlearn.LocalSGD",
  mv_local_sgd_synchronize = "LocalSGD:synchronize_parameters", mv_compressed_open = "distlearn.CompressedAllReduce",
  mv_compressed_average = "CompressedAllReduce:average_gradients", kv_create = "kvstore.create", kv_run_server = "kvstore.run_server",
  kv_set_controller = "kvstore.set_controller", kv_next_command = "kvstore.run_commands", kv_next_update = "store:update",
  mv_abort = "node:abort", mv_tensor_binary = "tensor arithmetic", mv_tensor_scalar = "tensor arithmetic",
  mv_tensor_unary = "tensor arithmetic", mv_tensor_reduce = "tensor reduction",
}
for _, name in ipairs{"add", "get", "peek", "set", "erase"} do EXCEPTIONS["mv_table_" .. name .. "_rows"] = "table:" .. name end

--- Names the function by which the script calls a function of C from now on, for messages: node:matrix calls
-- mv_table_create.
function names.called(of_c, by) EXCEPTIONS[of_c] = by end

local function of_function(name)
  for _, prefix in ipairs(PREFIXES) do
    local from, to = prefix[1], prefix[2]
    if name:sub(1, #from) == from then return to .. name:sub(#from + 1) end
  end
end

local TYPES = {}
for name in ([[node table tensor request group gossip custom strategy dtype status table_kind text_flag reduction log_level role
    tensor_binary_op tensor_unary_op tensor_reduce_op tensor_matmul_flag]]):gmatch("%S+") do
  TYPES["mv_" .. name] = (name:gsub("_", " "))
end

-- The Lua name of a function of C, the plain name of a type of C such as mv_dtype; nil for any other word, which may be
-- the name that a script has given to a table.
local function of(name)
  if TYPES[name] or EXCEPTIONS[name] then return TYPES[name] or EXCEPTIONS[name] end
  return type(require("polyverso.capi")[name]) == "function" and of_function(name) or nil
end

-- ------------------------------------------------------------------ misspelt names

-- The number of single letters to insert, remove, replace or swap with a neighbour to get from a to b.
local function distance(a, b)
  local before, last = {}, {}
  for j = 0, #b do last[j] = j end
  for i = 1, #a do
    local now = {[0] = i}
    for j = 1, #b do
      local same = a:byte(i) == b:byte(j) and 0 or 1
      now[j] = math.min(last[j] + 1, now[j - 1] + 1, last[j - 1] + same)
      if i > 1 and j > 1 and a:byte(i) == b:byte(j - 1) and a:byte(i - 1) == b:byte(j) then now[j] = math.min(now[j], before[j - 2] + 1) end
    end
    before, last = last, now
  end
  return last[#b]
end

--- '; did you mean "rows"?' for the most similar of the names, or "" if none is similar.
function names.did_you_mean(name, known)
  local best, least = nil, math.huge
  name = tostring(name):sub(1, 100):lower()
  for _, other in ipairs(known) do
    local far = distance(name, other:lower())
    if far < least then best, least = other, far end
  end
  if not best or least > math.max(1, math.floor(#best / 3)) then return "" end
  return ('; did you mean "%s"?'):format(best)
end

--- Makes a module refuse names of classes that it does not have: a nil would be "a nil value" without its name.
function names.refuse_classes(module, kind)
  return setmetatable(module, {__index = function(_, name)
    if type(name) ~= "string" or not name:find("^%u") then return nil end
    local known = {}
    for class in pairs(module) do
      if class:find("^%u") then known[#known + 1] = class end
    end
    table.sort(known)
    local capi = require("polyverso.capi")
    local similar = names.did_you_mean(name, known)
    capi.raise(capi.MV_EINVAL, ('unknown %s "%s"; known: %s%s'):format(kind, name, table.concat(known, ", "), similar))
  end})
end

--- The words of a text.
function names.words(text)
  local words = {}
  for word in text:gmatch("[%w_.]+") do words[#words + 1] = word end
  return words
end

-- ------------------------------------------------------------------ messages

--- A text in which Lua's names replace those of C, and with a guess for a name that does not exist.
function names.in_text(text)
  local misspelt, known = text:match('unknown %a+ "([^"]*)"; known: (.*)$')
  if known and not known:find("did you mean", 1, true) then text = text .. names.did_you_mean(misspelt, names.words(known)) end
  text = text:gsub("mv_init_options%.", "the option "):gsub(": ([%l_]+) is NULL", ": %1 is nil")
  text = text:gsub("%f[%w_]an (mv_[%w_]+)", function(name) return TYPES[name] and "a " .. TYPES[name] end)
  return (text:gsub("%f[%w_][mk]v_[%w_]+", of))
end

return names
