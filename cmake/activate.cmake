# DIR/activate, for interactive shells; the same paths for tests that start other languages.
string(REPLACE "'" "'\\''" POLYVERSO_QUOTED_BINARY_DIR "${CMAKE_BINARY_DIR}")
configure_file(cmake/activate.in ${CMAKE_BINARY_DIR}/activate @ONLY)
