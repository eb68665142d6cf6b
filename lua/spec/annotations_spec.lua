-- Every public function has the annotations of lua-language-server.

local annotations = require("spec.annotations")
local polyverso = require("polyverso")

describe("annotations", function()
  it("are there for all functions of the public modules", function()
    local node = polyverso.init{log_level = "error"}
    local group = require("polyverso.group").open(node)
    local gossip = require("polyverso.gossip").open_text("nodes: [{name: one, host: 127.0.0.1, port: 0}]", "one")
    local distlearn, optimizer = require("polyverso.distlearn"), require("polyverso.optimizer")
    local function class_of(object) return getmetatable(object).__index end
    local classes = {
      ["polyverso"] = {polyverso},
      ["polyverso.node"] = {(require("polyverso.node"))},
      ["polyverso.table"] = {(require("polyverso.table"))},
      ["polyverso.request"] = {(require("polyverso.request"))},
      ["polyverso.tensor"] = {require("polyverso.tensor"), require("polyverso.tensor").methods},
      ["polyverso.group"] = {require("polyverso.group"), class_of(group)},
      ["polyverso.kvstore"] = {require("polyverso.kvstore"), class_of(require("polyverso.kvstore").create("local"))},
      ["polyverso.kvstore_server"] = {(require("polyverso.kvstore_server"))},
      ["polyverso.distlearn"] = {distlearn, class_of(distlearn.AllReduceSGD(group)), class_of(distlearn.AllReduceEA(group, 1, 0.5)),
        class_of(distlearn.AsyncEA(node:array{size = 2}, 1, 0.5)), class_of(distlearn.LocalSGD(group, 1)),
        class_of(distlearn.CompressedAllReduce(group, "int8"))},
      ["polyverso.gossip"] = {require("polyverso.gossip"), class_of(gossip)},
      ["polyverso.optimizer"] = {optimizer, class_of(optimizer.SGD())},
      ["polyverso.lr_scheduler"] = {(require("polyverso.lr_scheduler"))},
    }
    local all = {}
    for module, tables in pairs(classes) do
      for _, complaint in ipairs(annotations.complaints(module, tables)) do all[#all + 1] = complaint end
    end
    gossip:close()
    group:close()
    node:shutdown()
    table.sort(all)
    assert.same({}, all)
  end)
end)
