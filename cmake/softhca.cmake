# Helpers for the build: one library per folder of src/, one test program per folder of tests/unit/.

# ccache's base directory makes objects of one checkout serve another beside it; the sloppiness is what it needs
# to look into precompiled headers.
find_program(CCACHE ccache)
if(CCACHE)
  get_filename_component(parent ${CMAKE_SOURCE_DIR} DIRECTORY)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${parent} CCACHE_NOHASHDIR=1
      CCACHE_PCH_EXTSUM=1 CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE})
endif()
find_program(MOLD mold)
if(MOLD AND NOT SOFTHCA_FUZZ)
  add_link_options(-fuse-ld=mold)
endif()

add_compile_options(-Wall -Winvalid-pch -Wextra -Werror -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # gcc 12 sees array overruns in std::span and <algorithm> where there are none.
  add_compile_options(-Wno-array-bounds -Wno-stringop-overflow -Wno-stringop-overread)
  # Collect garbage from 512 MiB of it, not from 128: a batch of tests compiles a tenth faster.
  add_compile_options(--param=ggc-min-heapsize=524288)
endif()
if(SOFTHCA_SANITIZE)
  add_compile_options(-fsanitize=${SOFTHCA_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${SOFTHCA_SANITIZE})
endif()
if(SOFTHCA_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
if(SOFTHCA_COVERAGE)
  # Counters lie in the mapped file itself, so that a process that may write no file at its end is counted, too.
  add_compile_options(-fprofile-instr-generate -fcoverage-mapping -mllvm -runtime-counter-relocation)
  add_link_options(-fprofile-instr-generate)
endif()

# What a program is compiled with whose own speed is no matter. Without optimization it takes a quarter less time, without
# debug information a sixth less of the rest; build-dev has both.
set(softhca_quick)
if(CMAKE_BUILD_TYPE STREQUAL "RelWithDebInfo")
  set(softhca_quick -O0 -g0)
endif()

# softhca_precompiled(<name> <header>...): headers of the system that most files include, parsed once. Nothing of
# ours is among them, so that an edit rebuilds what it must and no more; each file still includes what it uses.
# By hand and with a relative path, because CMake's own way puts absolute paths where ccache stumbles over
# them; the .sum tells it that two checkouts have the same headers. The definitions are those that the targets
# get from GoogleTest: a header and its user must agree on them.
function(softhca_precompiled name)
  set(header ${CMAKE_BINARY_DIR}/precompiled/${name}.h)
  list(TRANSFORM ARGN REPLACE "(.+)" "#include <\\1>" OUTPUT_VARIABLE lines)
  list(JOIN lines "\n" text)
  file(CONFIGURE OUTPUT ${header} CONTENT "${text}\n")
  string(SHA256 sum "${text} ${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}")
  string(TOUPPER "${CMAKE_BUILD_TYPE}" type)
  separate_arguments(flags UNIX_COMMAND "${CMAKE_CXX_FLAGS} ${CMAKE_CXX_FLAGS_${type}}")
  get_directory_property(options COMPILE_OPTIONS)
  # What the targets define, too: gcc refuses headers that were compiled with other macros.
  if(name STREQUAL "precompiled_test")
    set(definitions -DGTEST_HAS_PTHREAD=1 ${softhca_quick})
  else()
    set(definitions ${softhca_shareable})
  endif()
  set(suffix gch)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    set(suffix pch)
    list(APPEND options -Xclang -fno-pch-timestamp)
  endif()
  add_custom_command(
    OUTPUT ${header}.${suffix}
    COMMAND ${CMAKE_CXX_COMPILER} ${flags} ${options} -std=c++20 ${definitions}
            -x c++-header precompiled/${name}.h -o precompiled/${name}.h.${suffix}
    COMMAND ${CMAKE_COMMAND} -E echo ${sum} > precompiled/${name}.h.${suffix}.sum
    DEPENDS ${header} WORKING_DIRECTORY ${CMAKE_BINARY_DIR} VERBATIM)
  add_custom_target(${name} DEPENDS ${header}.${suffix})
endfunction()
# src/ is compiled once, for the programs and for libsofthca.so: position independent, and hidden, so that nothing of
# it meets what a program brings. No semantic interposition: what is hidden may be inlined.
set(softhca_shareable -fPIC -fvisibility=hidden -fvisibility-inlines-hidden -fno-semantic-interposition)
set(system_headers algorithm array bitset chrono cstdint cstring functional map memory optional span string
    string_view utility vector fmt/format.h tl/expected.hpp)
softhca_precompiled(precompiled ${system_headers})
softhca_precompiled(precompiled_test ${system_headers} gmock/gmock.h gtest/gtest.h)

# softhca_use_precompiled(<target> <name>)
function(softhca_use_precompiled target name)
  add_dependencies(${target} ${name})
  target_compile_options(${target} PRIVATE "SHELL:-include precompiled/${name}.h")
endfunction()

# softhca_use_batches(<target>): most of the time of a compilation goes into the headers, which the files of a target
# share. So up to 32 of the target's files are compiled at a time, unless SOFTHCA_BATCHES is off. Files that include a header
# that takes seconds come first, and so share batches. GCC takes the files of a batch for headers, where it warns of types
# that have members of an anonymous namespace. In a batch a name may shadow one of another file, which is no mistake; the
# preset dev, without batches, finds those of one file.
function(softhca_use_batches target)
  if(SOFTHCA_BATCHES)
    get_target_property(sources ${target} SOURCES)
    foreach(header "<CLI/" "<nlohmann/")
      set(heavy)
      foreach(source ${sources})
        file(STRINGS ${source} found REGEX "#include ${header}" LIMIT_COUNT 1)
        if(found)
          list(APPEND heavy ${source})
        endif()
      endforeach()
      if(heavy)
        list(REMOVE_ITEM sources ${heavy})
        list(APPEND heavy_sources ${heavy})
      endif()
    endforeach()
    set_target_properties(${target} PROPERTIES SOURCES "${heavy_sources};${sources}")
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 32)
    target_compile_options(${target} PRIVATE -Wno-shadow $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
  endif()
endfunction()
# The files of these folders give the same names to different things.
set(softhca_without_batches wire)

# softhca_library(<folder> [DEPENDS <folder>...] [LINK <target>...])
# A static library from every .cc file of src/<folder>; DEPENDS names folders above it in
# docs/architecture.md.
function(softhca_library folder)
  cmake_parse_arguments(ARG "" "" "DEPENDS;LINK" ${ARGN})
  string(REPLACE "/" "_" name ${folder})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${folder}/*.cc
       ${CMAKE_SOURCE_DIR}/src/${folder}/*/*.cc)
  list(FILTER sources EXCLUDE REGEX "_main\\.cc$")
  if(sources)
    add_library(${name} STATIC ${sources})
    target_compile_options(${name} PRIVATE ${softhca_shareable})
    softhca_use_precompiled(${name} precompiled)
    if(NOT name IN_LIST softhca_without_batches)
      softhca_use_batches(${name})
    endif()
    set(scope PUBLIC)
  else()
    add_library(${name} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_include_directories(${name} ${scope} ${CMAKE_SOURCE_DIR}/src)
  foreach(dependency ${ARG_DEPENDS})
    string(REPLACE "/" "_" dependency ${dependency})
    target_link_libraries(${name} ${scope} ${dependency})
  endforeach()
  target_link_libraries(${name} ${scope} ${ARG_LINK})
endfunction()

# softhca_layouts(<document> [ROLES]): headers from src/spec/<document>/*.layout, and any .cc beside them. ROLES: the tables of
# what each opcode does, command_roles.inc.
function(softhca_layouts document)
  cmake_parse_arguments(ARG "ROLES" "" "" ${ARGN})
  file(GLOB layouts CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/spec/${document}/*.layout)
  set(headers)
  foreach(layout ${layouts})
    get_filename_component(stem ${layout} NAME_WE)
    set(header ${CMAKE_BINARY_DIR}/generated/spec/${document}/${stem}.h)
    add_custom_command(
      OUTPUT ${header}
      COMMAND Python3::Interpreter ${CMAKE_SOURCE_DIR}/tools/layout_compiler.py ${layout} ${header}
      DEPENDS ${layout} ${CMAKE_SOURCE_DIR}/tools/layout_compiler.py
      VERBATIM)
    list(APPEND headers ${header})
  endforeach()
  if(ARG_ROLES)
    set(tables ${CMAKE_BINARY_DIR}/generated/spec/${document}/command_roles.inc)
    add_custom_command(
      OUTPUT ${tables}
      COMMAND Python3::Interpreter ${CMAKE_SOURCE_DIR}/tools/command_roles.py ${CMAKE_SOURCE_DIR}/src/spec/${document} ${tables}
      DEPENDS ${layouts} ${CMAKE_SOURCE_DIR}/tools/command_roles.py ${CMAKE_SOURCE_DIR}/tools/layout_compiler.py
      VERBATIM)
    list(APPEND headers ${tables})
  endif()
  add_custom_target(spec_${document}_headers DEPENDS ${headers})
  softhca_library(spec/${document} DEPENDS util)
  get_target_property(type spec_${document} TYPE)
  if(type STREQUAL "INTERFACE_LIBRARY")
    target_include_directories(spec_${document} INTERFACE ${CMAKE_BINARY_DIR}/generated)
  else()
    target_include_directories(spec_${document} PUBLIC ${CMAKE_BINARY_DIR}/generated)
  endif()
  add_dependencies(spec_${document} spec_${document}_headers)
endfunction()

# softhca_refusals(<folder> SOURCES <file>...): generated/<folder>/refusals.inc, the table of all refusals of the
# folder's commands and of those other files.
function(softhca_refusals folder)
  cmake_parse_arguments(ARG "" "" "SOURCES" ${ARGN})
  set(src ${CMAKE_SOURCE_DIR}/src)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${src}/${folder}/*.cc ${src}/${folder}/*.h)
  file(GLOB layouts CONFIGURE_DEPENDS ${src}/spec/${folder}/*.layout)
  list(APPEND sources ${ARG_SOURCES})
  set(commands ${src}/${folder}/command/command_list.inc)
  set(table ${CMAKE_BINARY_DIR}/generated/${folder}/refusals.inc)
  add_custom_command(
    OUTPUT ${table}
    COMMAND Python3::Interpreter ${CMAKE_SOURCE_DIR}/tools/refusal_table.py --layouts ${src}/spec/${folder}
            --commands ${commands} --folder ${src} --output ${table} ${sources}
    DEPENDS ${sources} ${layouts} ${commands} ${CMAKE_SOURCE_DIR}/tools/refusal_table.py
    VERBATIM)
  target_sources(${folder} PRIVATE ${table})
endfunction()

# softhca_preload(<folder> CHAPTERS <folder>... PARTS <file>... DEPENDS <folder>...): libsofthca.so, which programs are started
# with: the folder that takes libc's calls, its CHAPTERS, and of the libraries what it needs. PARTS are the files, without .cc,
# that take no calls: tests link their objects, <folder>_parts.
function(softhca_preload folder)
  cmake_parse_arguments(ARG "" "" "CHAPTERS;PARTS;DEPENDS" ${ARGN})
  list(TRANSFORM ARG_CHAPTERS REPLACE "(.+)" "${CMAKE_SOURCE_DIR}/src/${folder}/\\1/*.cc" OUTPUT_VARIABLE chapters)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${folder}/*.cc ${chapters})
  list(TRANSFORM ARG_PARTS REPLACE "(.+)" "${CMAKE_SOURCE_DIR}/src/${folder}/\\1.cc" OUTPUT_VARIABLE parts)
  list(REMOVE_ITEM sources ${parts})
  list(TRANSFORM ARG_DEPENDS REPLACE "/" "_")
  add_library(${folder}_parts OBJECT ${parts})
  add_library(softhca_preload SHARED ${sources})
  foreach(target ${folder}_parts softhca_preload)
    target_compile_options(${target} PRIVATE ${softhca_shareable})
    softhca_use_precompiled(${target} precompiled)
    softhca_use_batches(${target})
  endforeach()
  target_link_libraries(${folder}_parts PUBLIC ${ARG_DEPENDS})
  target_link_libraries(softhca_preload PRIVATE ${folder}_parts)
  set_target_properties(softhca_preload PROPERTIES OUTPUT_NAME softhca LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
  # libgcc is the process's own: libc unwinds a thread that is cancelled by it, and through frames of ours.
  target_link_options(softhca_preload PRIVATE -static-libstdc++ -Wl,--exclude-libs,ALL -Wl,-z,defs
                      # The loader is not called later: in a handler of a signal it may have no stack.
                      -Wl,-z,now)
  # A library with a sanitizer does not work in programs without it: its tests are left out then, and so is the library.
  if(SOFTHCA_SANITIZE)
    set_target_properties(softhca_preload PROPERTIES EXCLUDE_FROM_ALL ON)
  endif()
endfunction()

# softhca_compile_quickly(<target>): for programs whose own speed is no matter.
function(softhca_compile_quickly target)
  target_compile_options(${target} PRIVATE ${softhca_quick})
endfunction()

# softhca_compile_for_tests(<target>): quickly, with the precompiled headers of tests.
function(softhca_compile_for_tests target)
  softhca_compile_quickly(${target})
  softhca_use_precompiled(${target} precompiled_test)
  # As GoogleTest's targets define it: those that link none of them share the headers, too.
  target_compile_definitions(${target} PRIVATE GTEST_HAS_PTHREAD=1)
endfunction()

# softhca_test_library(<target> <source>...): compiled once for several test programs.
function(softhca_test_library target)
  add_library(${target} STATIC ${ARGN})
  softhca_compile_for_tests(${target})
  softhca_use_batches(${target})
endfunction()

# softhca_test_host(<folder> [LINK <target>...]): the library <folder>_test_host from all files of tests/unit/<folder> and of its
# chapters that are no tests. Its tests use it, and fuzzers may.
function(softhca_test_host folder)
  cmake_parse_arguments(ARG "" "" "LINK" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/unit/${folder}/*.cc
       ${CMAKE_SOURCE_DIR}/tests/unit/${folder}/*/*.cc)
  list(FILTER sources EXCLUDE REGEX "_test\\.cc$")
  softhca_test_library(${folder}_test_host ${sources})
  target_include_directories(${folder}_test_host PUBLIC ${CMAKE_SOURCE_DIR}/tests/unit)
  target_link_libraries(${folder}_test_host PUBLIC ${folder} ${ARG_LINK} GTest::gmock)
endfunction()

# softhca_test(<folder> [WAITS] [DIRECTORY tests/unit] [DEPENDS <folder>...] [LINK <target>...]): the tests of
# <directory>/<folder> and of its chapters. WAITS: its tests wait most of the time, so that they need half a processor.
function(softhca_test folder)
  cmake_parse_arguments(ARG "WAITS" "DIRECTORY" "DEPENDS;LINK" ${ARGN})
  set(halves 2)
  if(ARG_WAITS)
    set(halves 1)
  endif()
  if(NOT ARG_DIRECTORY)
    set(ARG_DIRECTORY tests/unit)
  endif()
  string(REPLACE "/" "_" name ${folder})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${ARG_DIRECTORY}/${folder}/*.cc
       ${CMAKE_SOURCE_DIR}/${ARG_DIRECTORY}/${folder}/*/*_test.cc)
  if(NOT sources)
    return()
  endif()
  if(TARGET ${name}_test_host)
    list(FILTER sources INCLUDE REGEX "_test\\.cc$")
    list(APPEND ARG_LINK ${name}_test_host)
  endif()
  add_executable(${name}_test ${sources})
  softhca_compile_for_tests(${name}_test)
  softhca_use_batches(${name}_test)
  target_include_directories(${name}_test PRIVATE ${CMAKE_SOURCE_DIR}/tests/unit)
  foreach(dependency ${ARG_DEPENDS})
    string(REPLACE "/" "_" dependency ${dependency})
    target_link_libraries(${name}_test PRIVATE ${dependency})
  endforeach()
  target_link_libraries(${name}_test PRIVATE ${ARG_LINK} test_main)
  # As gtest_discover_tests, but by suite.
  set(suites ${CMAKE_CURRENT_BINARY_DIR}/${name}_suites.cmake)
  add_custom_command(
    TARGET ${name}_test POST_BUILD BYPRODUCTS ${suites}
    COMMAND ${CMAKE_COMMAND} -DPROGRAM=$<TARGET_FILE:${name}_test> -DPREFIX=${name} -DOUTPUT=${suites} -DTIMEOUT=600
            -DHALVES=${halves} -P ${CMAKE_SOURCE_DIR}/cmake/discover_suites.cmake VERBATIM)
  set(include ${CMAKE_CURRENT_BINARY_DIR}/${name}_include.cmake)
  file(WRITE ${include} "if(EXISTS [==[${suites}]==])\n  include([==[${suites}]==])\n"
       "else()\n  add_test(${name}.NOT_BUILT ${name}_test)\n"
       "  set_tests_properties(${name}.NOT_BUILT PROPERTIES LABELS unit)\nendif()\n")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${include})
endfunction()
