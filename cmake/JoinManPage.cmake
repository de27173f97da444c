# SPDX-License-Identifier: Apache-2.0
# cmake -DPAGE=in.md -DROOT=.. -DLOWDOWN=program -DVERSION=1.2.3 -DOUTPUT=page.1 -P JoinManPage.cmake
# Makes a man page from Markdown. A line "<!-- docs/spec.md -->" stands for that page without its title,
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
# To lowdown, a name with two underscores holds a word in italics. Our pages have no emphasis by
# underscores, so a character that means nothing to lowdown takes their place on the way through.
string(ASCII 26 underscore)
string(REPLACE "_" "${underscore}" text "${text}")
file(WRITE "${OUTPUT}.md" "${text}")
execute_process(COMMAND "${LOWDOWN}" -s -t man -m "source=reshard ${VERSION}" --out-no-smarty "${OUTPUT}.md" OUTPUT_VARIABLE page COMMAND_ERROR_IS_FATAL ANY)
string(REPLACE "${underscore}" "_" page "${page}")
file(WRITE "${OUTPUT}" "${page}")
