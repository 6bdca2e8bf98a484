# After a test program is linked: one ctest test for each of its test suites, by the name PROGRAM.SUITE.
# One for each test would be thousands of processes, most of which live for a millisecond.
#
# cmake -DPROGRAM=... -DPREFIX=... -DOUTPUT=... -DTIMEOUT=... -DHALVES=... -P discover_suites.cmake
execute_process(COMMAND ${PROGRAM} --gtest_list_tests OUTPUT_VARIABLE listing RESULT_VARIABLE status)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "${PROGRAM} --gtest_list_tests: status ${status}")
endif()
string(REGEX MATCHALL "(^|\n)[^ \n]+\\." suites "${listing}")
set(tests)
foreach(suite ${suites})
  string(REGEX REPLACE "[\n.]" "" suite ${suite})
  string(APPEND tests "add_test([=[${PREFIX}.${suite}]=] ${PROGRAM} --gtest_filter=${suite}.*)\n"
         "set_tests_properties([=[${PREFIX}.${suite}]=] PROPERTIES LABELS unit TIMEOUT ${TIMEOUT} PROCESSORS ${HALVES} COST ${HALVES})\n")
endforeach()
if(NOT tests)
  message(FATAL_ERROR "${PROGRAM} has no tests")
endif()
file(WRITE ${OUTPUT} "${tests}")
