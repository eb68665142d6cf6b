# DIR/activate, for interactive shells; the same paths for tests that start other languages.
configure_file(cmake/activate.in ${CMAKE_BINARY_DIR}/activate @ONLY)
