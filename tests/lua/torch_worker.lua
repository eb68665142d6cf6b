-- A worker of a cluster that was written for Torch and Multiverso: sums of gradients, and a model trained by all.

require 'torch'
local mv = require 'multiverso'

local suite, tester = torch.TestSuite(), torch.Tester()

function suite.gradientsOfAllWorkersAddUp()
  local size, workers = 1000, mv.num_workers()
  local model = mv.ArrayTableHandler:new(size, torch.range(1, size))
  mv.barrier()
  tester:assertTensorEq(model:get():double(), torch.range(1, size), 0)
  mv.barrier()
  for i = 1, 10 do
    model:add(torch.ones(size) * (mv.worker_id() + 1))
    mv.barrier()
    local added = i * workers * (workers + 1) / 2
    tester:assertTensorEq(model:get():double(), torch.range(1, size) + added, 0)
    mv.barrier()
  end
end

function suite.initialValuesAreAveraged()
  local values = torch.FloatTensor(2, 3):fill(mv.worker_id())
  local matrix = mv.MatrixTableHandler:new(2, 3, values, "average")
  tester:eq(matrix:get(), torch.FloatTensor(2, 3):fill((mv.num_workers() - 1) / 2), 1e-6)
end

-- An add returns at once; the tensor is the script's again all the same, though its memory is shared with the server.
function suite.whatWasAddedMayBeChanged()
  local size, times = 200000, 20
  local counts, ones = mv.ArrayTableHandler:new(size), torch.FloatTensor(size)
  mv.barrier()
  for _ = 1, times do
    ones:fill(1)
    counts:add(ones)
    ones:fill(1000)
  end
  mv.barrier()
  local all = counts:get()
  tester:eq({all:min(), all:max()}, {times * mv.num_workers(), times * mv.num_workers()})
end

function suite.allLearnOneLine()
  torch.manualSeed(mv.worker_id() + 1)
  local weights = mv.ArrayTableHandler:new(2)
  local inputs = torch.cat(torch.randn(50, 1), torch.ones(50, 1), 2)
  local wanted = inputs * torch.Tensor{3, -1}
  for _ = 1, 200 do
    local own = weights:get():double()
    local gradient = inputs:t() * (inputs * own - wanted)
    weights:add(gradient * (-0.05 / 50))
    mv.barrier()
  end
  tester:eq(weights:get():double(), torch.Tensor{3, -1}, 0.05)
end

mv.init(false)
tester:add(suite)
local write = io.write
if mv.worker_id() ~= 0 then io.write = function() end end -- one report is enough
local ended, failure = pcall(tester.run, tester)
io.write = write
mv.shutdown()
if not ended then error(failure, 0) end
