// A target with a precompiled header needs a source. The tests reuse the header: see CMakeLists.txt.
