# SPDX-License-Identifier: Apache-2.0
# cmake -DPAGE=in.md -DROOT=.. -DOUTPUT=out.md -P JoinManPage.cmake
# Makes the Markdown of a man page. A line "<!-- docs/spec.md -->" stands for that page without its title,
# so that a text which is both a page of the docs and a man page is written once: its headings move up
# one level, and links, which a man page does not have, become their text.
file(READ "${PAGE}" text)
if(text MATCHES "\n<!-- (docs/[a-z]+\\.md) -->\n")
    set(line "${CMAKE_MATCH_0}")
    file(READ "${ROOT}/${CMAKE_MATCH_1}" body)
    string(REGEX REPLACE "^# [^\n]*\n" "" body "${body}")
    string(REGEX REPLACE "\n##(#*) " "\n#\\1 " body "${body}")
    string(REGEX REPLACE "\\[([^]\n]*)\\]\\([^)\n]*\\)" "\\1" body "${body}")
    string(REPLACE "${line}" "\n${body}\n" text "${text}")
endif()
file(WRITE "${OUTPUT}" "${text}")
