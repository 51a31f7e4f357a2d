# Completion of bash for outrider, outrider-coordinator, outrider-worker and outrider-group. What
# there is to complete is what the program itself says (--options-as=table,
# base/text/option_pages.h), so it is always that of the program that is called.
# shellcheck shell=bash

# Prints the table of a program and of its commands, with what it passes on to another program.
_outrider_table() { # _outrider_table PROGRAM COMMAND...
    "$@" --options-as=table </dev/null 2>/dev/null
    case $1 in
    *outrider-group)
        "${1%outrider-group}outrider-worker" --options-as=table </dev/null 2>/dev/null
        ;;
    esac
}

# _outrider_offer KIND WORDS CURRENT: what a value may be, in COMPREPLY.
_outrider_offer() {
    case $1 in
    files) mapfile -t COMPREPLY < <(compgen -f -- "$3") && compopt -o filenames ;;
    folders) mapfile -t COMPREPLY < <(compgen -d -- "$3") && compopt -o filenames ;;
    words) mapfile -t COMPREPLY < <(compgen -W "$2" -- "$3") ;;
    esac
}

_outrider() {
    local program current=$2 words=() calls=() commands=() options=() table
    local i word option='' argument=any sort name letter value kind list
    program=$(type -P -- "${COMP_WORDS[0]/#~\//$HOME/}") || return
    # bash parts words at "=": they are put together again, without the one that is being written.
    for ((i = 1; i < COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        if [ "$word" = = ] && [ ${#words[@]} -gt 0 ]; then
            words[-1]+="="
        elif [ ${#words[@]} -gt 0 ] && [[ ${words[-1]} == --*= ]]; then
            words[-1]+=$word
        else
            words+=("$word")
        fi
    done
    [ "$current" != = ] || { words[-1]+="=" && current=; }

    # The command, and a command of the command.
    calls=("$program")
    table=$(_outrider_table "${calls[@]}")
    i=0
    while [ $i -lt ${#words[@]} ] && [[ $table == command$'\t'* ]]; do
        word=${words[i]}
        i=$((i + 1))
        [[ $'\n'$table == *$'\n'command$'\t'"$word"$'\t'* ]] || continue
        [ "$word" = help ] && continue
        calls+=("$word")
        table=$(_outrider_table "${calls[@]}")
    done

    # The option whose value is being written.
    word=
    [ $i -ge ${#words[@]} ] || word=${words[-1]}
    while IFS=$'\t' read -r sort name letter value kind list _; do
        case $sort in
        command) commands+=("$name") ;;
        argument) argument=$name ;;
        option)
            if [ "$value" = - ]; then options+=("$name"); else options+=("$name="); fi
            [ "$value" != - ] || continue
            if [ "$word" = "$name" ] || [ "$word" = "$name=" ]; then option=$kind$'\t'$list; fi
            if [ "$letter" != - ] && [ "$word" = "$letter" ]; then option=$kind$'\t'$list; fi
            ;;
        esac
    done <<<"$table"

    COMPREPLY=()
    if [ -n "$option" ]; then
        _outrider_offer "${option%%$'\t'*}" "${option#*$'\t'}" "$current"
    elif [[ $current == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "${options[*]} --help --version" -- "$current")
        [[ ${#COMPREPLY[@]} -ne 1 || ${COMPREPLY[0]} != *= ]] || compopt -o nospace
    elif [ ${#commands[@]} -gt 0 ]; then
        _outrider_offer words "${commands[*]}" "$current"
    else
        _outrider_offer "$argument" '' "$current"
    fi
}

complete -F _outrider outrider outrider-coordinator outrider-worker outrider-group
