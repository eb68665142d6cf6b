---@meta polyverso.types

--- The types in this library's annotations, for editors with lua-language-server: add this folder's parent to
--- Lua.workspace.library. No program loads this file.
---
--- Every function that fails raises an error, a table {code, name, family, text, where}: see polyverso.Error.

--- What a number is stored as. bf16 is bfloat16, f16 IEEE's half.
---@alias polyverso.dtype "f32"|"f64"|"i64"|"i32"|"u8"|"i8"|"f16"|"bf16"

--- A tensor of this library or of Torch, FFI memory (an array, or {pointer = cdata, count = n, shape = {2, 3}}).
---@alias polyverso.Array polyverso.Tensor|table

--- Values of a table: an array as above, a list of numbers, or a list of rows of numbers.
---@alias polyverso.Values polyverso.Array|number|number[]|number[][]

--- Arrays in nested tables, in the order of their sorted keys.
---@alias polyverso.Arrays polyverso.Array|table<any, polyverso.Arrays>

--- The shape of an array: its lengths, outermost first; one number for one dimension.
---@alias polyverso.shape integer|integer[]

---@class polyverso.Error
---@field code integer the status, such as polyverso.MV_ESHAPE
---@field name string the status's name, "MV_ESHAPE"
---@field family "argument"|"handle"|"state"|"timeout"|"peer"|"step"|"interrupt"|"system"
---@field text string what happened in this call
---@field where string the line of the call

--- Options of calls that may wait.
---@class polyverso.CallOptions
---@field timeout? number seconds; nil: the node's default, math.huge: no limit
---@field async? boolean return a request at once

---@class polyverso.SaveOptions: polyverso.CallOptions
---@field keep? integer how many of the newest checkpoints are kept; nil: all

---@class polyverso.TableOptions: polyverso.CallOptions
---@field rows? integer[]|integer|polyverso.Tensor row ids from 0, in any order, instead of the whole table
---@field keys? integer[]|integer|polyverso.Tensor the same for key-value tables: any 64-bit integers
---@field out? polyverso.Values get() and peek(): receives the values in place
---@field wait? boolean add(), set(), erase(): false returns at once and without a request

---@class polyverso.ScanOptions
---@field chunk? integer rows in each iteration; default 16384

--- Fields of mv_init_options; polyverso.h has them all.
---@class polyverso.Settings
---@field sync? boolean sync mode for all tables without a staleness of their own
---@field role? integer polyverso.MV_ROLE_ALL, MV_ROLE_WORKER or MV_ROLE_SERVER
---@field rank? integer this process's number in the cluster
---@field nodes? integer processes of the cluster
---@field master? string "host:port" of rank 0
---@field timeout_ms? integer the limit of one request, in milliseconds
---@field log_level? "trace"|"debug"|"info"|"warn"|"error"|"off"

---@class polyverso.TableSpec
---@field dtype? polyverso.dtype default "f32"
---@field name? string the table's identity, for node:open()
---@field reject_nonfinite? boolean refuse NaN and infinity
---@field merge? boolean every worker's i-th add is its part of round i; the sum goes through the updater once
---@field no_backups? boolean replicas=0 for this table: no other server keeps a copy
---@field updater? string|polyverso.Optimizer how servers apply an add, "adagrad rate=0.1"
---@field staleness? integer clocks that a worker may be ahead of the slowest one; 0: sync mode for this table

---@class polyverso.ArraySpec: polyverso.TableSpec
---@field size integer elements
---@field device? string "cuda:0": each server's part is in the memory of its device of this number; default: the host's
---@field init? polyverso.Values initial values; those of worker 0 count

---@class polyverso.MatrixSpec: polyverso.TableSpec
---@field rows integer
---@field cols integer
---@field device? string as an array's
---@field init? polyverso.Values initial values; those of worker 0 count

---@class polyverso.SparseSpec: polyverso.TableSpec
---@field rows integer
---@field cols integer
---@field initial? number the value of elements that were never changed; default 0
---@field initial_range? number this value is random within initial +- initial_range
---@field seed? integer the random values depend only on it, the row and the column

---@class polyverso.KeyValueSpec: polyverso.TableSpec
---@field cols? integer numbers for each key; default 1
---@field initial? number the value of elements that were never changed; default 0
---@field initial_range? number this value is random within initial +- initial_range
---@field seed? integer the random values depend only on it, the row and the column
---@field capacity? integer keys on all servers together; beyond it the least recently used ones are dropped

---@class polyverso.GroupOptions: polyverso.CallOptions
---@field op? "sum"|"prod"|"min"|"max"|"avg" default "sum"
---@field root? integer default 0
---@field tag? integer send() and recv(); default 0
---@field draining? boolean this rank takes part without contributing

---@class polyverso.ExchangeOptions: polyverso.CallOptions
---@field send_rows? integer[] the numbers of rows for each rank
---@field receive_rows? integer[] the numbers of rows from each rank

---@class polyverso.StoreOptions: polyverso.CallOptions
---@field priority? integer order in which waiting requests are sent, higher ones first
---@field sparse_too? boolean pull(): also fills row-sparse tensors

---@class polyverso.GrowOptions: polyverso.TimeoutOptions
---@field ranks? integer the least number of ranks to wait for; 0: waits for nobody
---@field name? string by which newcomers ask

---@class polyverso.TimeoutOptions
---@field timeout? number seconds

--- A key of a store, or a list of keys. The keys of a store are all integers or all names.
---@alias polyverso.Keys integer|string|integer[]|string[]

---@class polyverso.OuterSettings
---@field outer_rate? number the rate of the outer step; DiLoCo's default is 0.7
---@field outer_momentum? number DiLoCo's default is 0.9
---@field fragments? integer parts that are exchanged in turn
---@field overlap? integer inner steps between the begin and the end of an exchange
---@field mixing? number the share of the exchanged values

---@class polyverso.Meter
---@field steps integer
---@field operations integer
---@field payload_bytes integer
---@field dense_bytes integer

---@class polyverso.Fetched
---@field factor number the peer's share of the average
---@field peer string
---@field peer_clock number
---@field peer_loss number
---@field bytes integer

--- Parameters of all optimizers; docs/optimizers.md lists those of each.
---@class polyverso.OptimizerSettings
---@field learning_rate? number
---@field rescale_grad? number
---@field clip_gradient? number
---@field wd? number
---@field begin_num_update? integer
---@field lr_scheduler? polyverso.Schedule
---@field param_idx2name? table<integer|string, string>

--- Settings of all schedules; docs/optimizers.md lists those of each.
---@class polyverso.ScheduleSettings
---@field base_lr? number the rate at the start; default 0.01
---@field warmup_steps? integer
---@field warmup_begin_lr? number
---@field warmup_mode? "linear"|"constant"
