# SPDX-License-Identifier: Apache-2.0
# Joins the files of a page into two C texts: cli_page_head, up to where its data goes, and
# cli_page_tail, the rest.
#
#   cmake -DFRAME=page.html -DSTYLE=page.css -DMODULES=a.js|b.js -DOUTPUT=page_text.c -P JoinPage.cmake
#
# Modules become one: lines that import go, and so does the word export. All of them share one
# scope then, and a name that two of them define is an error of syntax, which any browser reports.

cmake_minimum_required(VERSION 3.25)

# Brackets and semicolons mean something to CMake's lists, so texts are never unquoted here.
function(read_module path out_text)
    file(READ "${path}" text)
    string(PREPEND text "\n")
    string(REGEX REPLACE "\nimport {[^}]*} from \"[^\"]*\";" "" text "${text}")
    string(REGEX REPLACE "\nexport (async function|function|const|let|class) " "\n\\1 " text "${text}")
    if(text MATCHES "\n(import|export)[^\n]*")
        message(FATAL_ERROR "${path}: this form is not joined: ${CMAKE_MATCH_0}")
    endif()
    set(${out_text} "${text}" PARENT_SCOPE)
endfunction()

function(make_c_text text out_text)
    string(REPLACE "\\" "\\\\" text "${text}")
    string(REPLACE "\"" "\\\"" text "${text}")
    string(REPLACE "?" "\\?" text "${text}") # no trigraphs
    string(REPLACE "\n" "\\n\"\n    \"" text "${text}")
    set(${out_text} "${text}" PARENT_SCOPE)
endfunction()

string(REPLACE "|" ";" MODULES "${MODULES}")
set(program "")
foreach(module IN LISTS MODULES)
    read_module("${module}" text)
    string(APPEND program "${text}")
endforeach()
if(program MATCHES "</script")
    message(FATAL_ERROR "a module would end the script that it is joined into")
endif()
file(READ "${STYLE}" style)
file(READ "${FRAME}" frame)
foreach(place IN ITEMS STYLE DATA PROGRAM)
    string(FIND "${frame}" "@${place}@" at)
    if(at EQUAL -1)
        message(FATAL_ERROR "${FRAME} has no @${place}@")
    endif()
endforeach()
string(REPLACE "@STYLE@" "${style}" frame "${frame}")
string(REPLACE "@PROGRAM@" "${program}" frame "${frame}")
string(FIND "${frame}" "@DATA@" at)
string(SUBSTRING "${frame}" 0 ${at} head)
math(EXPR at "${at} + 6")
string(SUBSTRING "${frame}" ${at} -1 tail)
make_c_text("${head}" head)
make_c_text("${tail}" tail)
file(WRITE "${OUTPUT}" "/* Made by JoinPage.cmake from the files of cli/page/web. */
extern const char cli_page_head[], cli_page_tail[];
const char cli_page_head[] = \"${head}\";
const char cli_page_tail[] = \"${tail}\";
")
