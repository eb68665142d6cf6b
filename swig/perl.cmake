# Perl: build/perl/Polyverso.pm and build/perl/Polyverso/, with the compiled part in auto/ where DynaLoader looks.
find_package(Perl REQUIRED)
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME perl)

# The compiler settings and folders of this Perl.
function(polyverso_perl_config variable code)
  execute_process(COMMAND ${PERL_EXECUTABLE} -MConfig -e "${code}"
    OUTPUT_VARIABLE output ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
  set(${variable} "${output}" PARENT_SCOPE)
endfunction()
polyverso_perl_config(perl_core [[print "$Config{archlibexp}/CORE"]])
polyverso_perl_config(perl_flags [[print $Config{ccflags}]])
polyverso_perl_config(perl_directory [[($_ = $Config{sitearchexp}) =~ s{^\Q$Config{siteprefixexp}\E/?}{}; print]])
# PDL is optional: without its header the module takes packed strings only.
polyverso_perl_config(pdl_core [[require PDL::Core::Dev; print PDL::Core::Dev::whereami_any(), "/Core"]])

set(POLYVERSO_PERL_DIR ${perl_directory} CACHE STRING "Where the Perl modules are installed, below the prefix")

set(perl_tree ${CMAKE_BINARY_DIR}/perl)
polyverso_swig_module(polyverso_perl
  SOURCE ${CMAKE_CURRENT_BINARY_DIR}/perl/capi.c
  SWIG_OPTIONS -perl5 -outdir ${perl_tree}/Polyverso
  BYPRODUCTS ${perl_tree}/Polyverso/CAPI.pm
  DIRECTORY ${perl_tree}/auto/Polyverso/CAPI
  OUTPUT_NAME CAPI SUFFIX .so
  INSTALL_DIRECTORY ${POLYVERSO_PERL_DIR}/auto/Polyverso/CAPI)
separate_arguments(perl_flags UNIX_COMMAND "${perl_flags}")
target_compile_options(polyverso_perl PRIVATE ${perl_flags})
target_include_directories(polyverso_perl SYSTEM PRIVATE ${perl_core})
if(pdl_core AND EXISTS ${pdl_core}/pdlcore.h)
  target_include_directories(polyverso_perl SYSTEM PRIVATE ${pdl_core})
  target_compile_definitions(polyverso_perl PRIVATE POLYVERSO_HAVE_PDL)
else()
  message(STATUS "PDL was not found: the Perl module is built for packed strings and arrays only")
endif()

polyverso_link_sources(${PROJECT_SOURCE_DIR}/perl/lib ${perl_tree})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/perl/lib/ DESTINATION ${POLYVERSO_PERL_DIR})
if(POLYVERSO_COMPAT)
  polyverso_link_sources(${PROJECT_SOURCE_DIR}/perl/AI-MXNet/lib ${perl_tree})
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/perl/AI-MXNet/lib/ DESTINATION ${POLYVERSO_PERL_DIR})
else()
  file(REMOVE_RECURSE ${perl_tree}/AI)  # of an earlier configuration
endif()
install(FILES ${perl_tree}/Polyverso/CAPI.pm DESTINATION ${POLYVERSO_PERL_DIR}/Polyverso)
