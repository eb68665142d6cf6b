---@meta nn

--- The types of the stand-in for Torch's nn, for editors with lua-language-server; see torch/annotations.lua. No program
--- loads this file.

--- A part of a network. `output` and `gradInput` hold the results of the last forward() and backward().
---@class nn.Module
---@field output torch.Tensor
---@field gradInput torch.Tensor
---@field weight? torch.Tensor
---@field bias? torch.Tensor
---@field gradWeight? torch.Tensor
---@field gradBias? torch.Tensor
---@field train boolean set by training() and evaluate()
--- The output for an input: a vector, or a matrix with one row for each example.
---@field forward fun(self: nn.Module, input: torch.Tensor): torch.Tensor
--- The gradient of the input, from the gradient of the output; adds `scale` times the parameters' gradients to theirs. input: that of the last
--- forward(); scale: default 1.
---@field backward fun(self: nn.Module, input: torch.Tensor, gradOutput: torch.Tensor, scale?: number): torch.Tensor
---@field updateOutput fun(self: nn.Module, input: torch.Tensor): torch.Tensor What forward() calls; classes define it.
--- What backward() calls for the gradient of the input; classes define it.
---@field updateGradInput fun(self: nn.Module, input: torch.Tensor, gradOutput: torch.Tensor): torch.Tensor
--- What backward() calls for the gradients of the parameters; classes with parameters define it. scale: default 1.
---@field accGradParameters fun(self: nn.Module, input: torch.Tensor, gradOutput: torch.Tensor, scale?: number)
---@field parameters fun(self: nn.Module): torch.Tensor[]?, torch.Tensor[]? The parameters and their gradients; nothing for a module without any.
--- All parameters as one flat tensor, and all gradients as another. The modules then use this memory: a change of the one is a change of the
--- other. Call it once, after the network is complete.
---@field getParameters fun(self: nn.Module): torch.Tensor, torch.Tensor
---@field zeroGradParameters fun(self: nn.Module) Sets all gradients to 0.
---@field updateParameters fun(self: nn.Module, rate: number) parameters = parameters - rate * gradients
---@field training fun(self: nn.Module) Sets `train`.
---@field evaluate fun(self: nn.Module) Clears `train`.
---@field apply fun(self: nn.Module, visit: fun(module: nn.Module)): nn.Module Calls visit(module) with this module and all modules in it.
---@field clone fun(self: nn.Module): nn.Module A copy with memory of its own.
---@field type fun(self: nn.Module, name?: torch.typename): nn.Module|torch.typename Converts all tensors; without a type, returns the type.
---@field float fun(self: nn.Module): nn.Module Converts all tensors to FloatTensors.
---@field double fun(self: nn.Module): nn.Module Converts all tensors to DoubleTensors.
---@field new fun(): nn.Module A module without parameters.

---@class nn.Sequential: nn.Module
---@field add fun(self: nn.Sequential, module: nn.Module): nn.Sequential Appends a module.
---@field get fun(self: nn.Sequential, position: integer): nn.Module The module at a position, from 1.
---@field size fun(self: nn.Sequential): integer The number of modules.

---@class nn.Linear: nn.Module
--- New random parameters, uniform within +-1 / sqrt(inputSize), or +-sqrt(3) * deviation.
---@field reset fun(self: nn.Linear, deviation?: number): nn.Linear

--- A loss.
---@class nn.Criterion
---@field output number
---@field gradInput torch.Tensor
---@field new fun(): nn.Criterion A loss, to derive others from.
---@field forward fun(self: nn.Criterion, input: torch.Tensor, target: torch.Tensor): number The loss of a network's outputs.
---@field updateOutput fun(self: nn.Criterion, input: torch.Tensor, target: torch.Tensor): number What forward() calls; classes define it.
--- The gradient of the loss with respect to the input.
---@field backward fun(self: nn.Criterion, input: torch.Tensor, target: torch.Tensor): torch.Tensor
---@field updateGradInput fun(self: nn.Criterion, input: torch.Tensor, target: torch.Tensor): torch.Tensor What backward() calls; classes define it.

--- The module.
---@class nn
---@field Tanh fun(): nn.Module The hyperbolic tangent of each element.
---@field Sigmoid fun(): nn.Module 1 / (1 + exp(-x)) of each element.
---@field ReLU fun(): nn.Module max(x, 0) of each element.
---@field Identity fun(): nn.Module The input itself.
---@field Module fun(): nn.Module A module without parameters.
---@field Sequential fun(): nn.Sequential Modules one after the other: each gets the output of the one before.
--- y = weight * x + bias. weight is outputSize x inputSize. bias: false for none.
---@field Linear fun(inputSize: integer, outputSize: integer, bias?: boolean): nn.Linear
---@field Criterion fun(): nn.Criterion A loss, to derive others from.
---@field MSECriterion fun(sizeAverage?: boolean): nn.Criterion The mean of the squared differences; their sum if sizeAverage is false.
local nn = {}

return nn
