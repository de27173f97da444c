# SPDX-License-Identifier: Apache-2.0
# Completion of the reshard command for bash. `reshard complete` knows what may come next; this file
# passes it the words of the line, and passes its answer to bash.

_reshard()
{
    local line=${COMP_LINE:0:COMP_POINT} word=${COMP_WORDS[0]} part rest kind answer i
    local -a words=()

    # bash also splits words at = and :. Parts without a space between them are one word.
    rest=${line#*"$word"}
    for ((i = 1; i <= COMP_CWORD; i++)); do
        part=${COMP_WORDS[i]}
        if ((i == 1)) || [[ $rest == [[:space:]]* ]] || [[ -z $rest ]]; then
            words+=("$part")
        else
            words[${#words[@]} - 1]+=$part
        fi
        while [[ $rest == [[:space:]]* ]]; do rest=${rest#?}; done
        rest=${rest#"$part"}
    done
    local current=${words[${#words[@]} - 1]}

    # Remove the quotes of words. Nothing on the line is ever evaluated.
    for i in "${!words[@]}"; do
        case ${words[i]} in
        \'*) words[i]=${words[i]#\'} words[i]=${words[i]%\'} ;;
        \"*) words[i]=${words[i]#\"} words[i]=${words[i]%\"} ;;
        *) words[i]=${words[i]//\\/} ;;
        esac
    done
    for i in "${!words[@]}"; do
        [[ ${words[i]} == \~/* ]] && words[i]=$HOME/${words[i]#\~/}
    done

    COMPREPLY=()
    # bash replaces only what follows the last = or : of the word.
    local kept=${current%"${current##*[=:]}"}
    [[ $COMP_WORDBREAKS == *=* && $COMP_WORDBREAKS == *:* ]] || kept=
    while IFS= read -r answer; do
        if [[ -z $kind ]]; then
            kind=$answer
        else
            answer=${answer#"$kept"}
            [[ $kind == files || $current == [\'\"]* ]] || printf -v answer %q "$answer"
            COMPREPLY+=("$answer")
        fi
    done < <("${COMP_WORDS[0]}" complete "${words[@]}" 2>/dev/null)
    if [[ $kind == files ]]; then
        compopt -o filenames 2>/dev/null
        while IFS= read -r answer; do
            COMPREPLY+=("$answer")
        done < <(compgen -f -- "${words[${#words[@]} - 1]#"$kept"}")
    fi
} && complete -F _reshard reshard
