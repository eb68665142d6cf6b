#pragma once
// The library's updaters as devices compute them: the same sources, with vectors of one element. See one_lane/.

#include <hwy/highway.h>

#include "base/both.hpp"
#include "shard/updater/adagrad.cpp"
#include "shard/updater/dcasgd.cpp"
#include "shard/updater/ftrl.cpp"
#include "shard/updater/momentum.cpp"
#include "shard/updater/optimizer/adadelta.cpp"
#include "shard/updater/optimizer/adagrad.cpp"
#include "shard/updater/optimizer/adam.cpp"
#include "shard/updater/optimizer/adamax.cpp"
#include "shard/updater/optimizer/adamw.cpp"
#include "shard/updater/optimizer/dcasgd.cpp"
#include "shard/updater/optimizer/ftml.cpp"
#include "shard/updater/optimizer/ftrl.cpp"
#include "shard/updater/optimizer/lamb.cpp"
#include "shard/updater/optimizer/lbsgd.cpp"
#include "shard/updater/optimizer/lion.cpp"
#include "shard/updater/optimizer/nadam.cpp"
#include "shard/updater/optimizer/nag.cpp"
#include "shard/updater/optimizer/rmsprop.cpp"
#include "shard/updater/optimizer/sgd.cpp"
#include "shard/updater/optimizer/sgld.cpp"
#include "shard/updater/optimizer/signum.cpp"
#include "shard/updater/optimizer/test.cpp"
#include "shard/updater/sgd.cpp"
