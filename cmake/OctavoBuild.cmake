# Flags of every target and the two functions that declare one.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")  # kernels/cpu asks for -O3 itself
set(CMAKE_CXX_FLAGS_DEV "-O2 -g1")
set(CMAKE_C_FLAGS_DEV "-O2 -g1")
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Dev)
endif()

find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
endif()
find_program(MOLD mold)
if(MOLD)
  add_link_options(-fuse-ld=mold)
endif()

option(OCTAVO_FUZZ "Build the libFuzzer programs of tests/fuzz (clang alone has libFuzzer)" OFF)
set(OCTAVO_SANITIZE "" CACHE STRING "Sanitizers of this build, as -fsanitize takes them")
if(OCTAVO_SANITIZE)
  add_compile_options(-fsanitize=${OCTAVO_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${OCTAVO_SANITIZE})
  set(CMAKE_CXX_FLAGS_DEV "-O1 -g1")  # compiles in three quarters of the time of -O2
  # With any of these three GCC takes a function's address for one that may be null, which is then no constant; the hash tables
  # of the Abseil that comes with GCC 14 need it to be one. What reads through a null pointer is found by AddressSanitizer as well.
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 14 AND
     OCTAVO_SANITIZE MATCHES "undefined")
    add_compile_options(-fno-sanitize=null,nonnull-attribute,returns-nonnull-attribute)
  endif()
endif()
if(OCTAVO_SANITIZE MATCHES "thread")
  add_compile_definitions(OCTAVO_SANITIZE_THREAD)  # GCC alone defines a macro
endif()

# Warnings of our own code; generated code is exempt.
add_library(octavo_warnings INTERFACE)
target_compile_options(octavo_warnings INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Werror)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  # GCC 12 sees overlapping copies in std::string's own code (GCC bug 105651).
  target_compile_options(octavo_warnings INTERFACE -Wno-restrict)
endif()
if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
  target_compile_options(octavo_warnings INTERFACE -Wthread-safety)
endif()

# octavo_library(NAME [SOURCES glob...] [EXCLUDE regex] [PUBLIC target...] [PRIVATE target...])
# A library of the current folder's sources. Includes are written from the repository root.
function(octavo_library name)
  cmake_parse_arguments(ARG "" "EXCLUDE" "SOURCES;PUBLIC;PRIVATE" ${ARGN})
  if(NOT ARG_SOURCES)
    set(ARG_SOURCES *.cc)
  endif()
  file(GLOB sources CONFIGURE_DEPENDS ${ARG_SOURCES})
  list(FILTER sources EXCLUDE REGEX "/main\\.cc$")
  if(ARG_EXCLUDE)
    list(FILTER sources EXCLUDE REGEX "${ARG_EXCLUDE}")
  endif()
  if(sources)
    add_library(${name} STATIC ${sources})
    target_include_directories(${name} PUBLIC ${PROJECT_SOURCE_DIR})
    target_link_libraries(${name} PUBLIC ${ARG_PUBLIC} PRIVATE octavo_warnings ${ARG_PRIVATE})
  else()
    add_library(${name} INTERFACE)
    target_include_directories(${name} INTERFACE ${PROJECT_SOURCE_DIR})
    target_link_libraries(${name} INTERFACE ${ARG_PUBLIC} ${ARG_PRIVATE})
  endif()
endfunction()

# octavo_program(NAME target...): the current folder's main.cc linked with the targets.
function(octavo_program name)
  if(EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/main.cc)
    add_executable(${name} main.cc)
    target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
    target_link_libraries(${name} PRIVATE octavo_warnings ${ARGN})
  endif()
endfunction()
