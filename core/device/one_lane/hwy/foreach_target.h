#pragma once
// See highway.h beside this file: there is one target.
