# Completes the last item of a list with values of a kind that gpuws prints, or the shell itself.
# compadd quotes them as the word to insert.
_gpuws_values() {
    # _arguments passes the options of compadd first.
    local kind=${@[-1]} i
    shift -p
    local -a machine lines values
    for ((i = 2; i < gpuws_at; i++)); do
        case "${gpuws_words[i]}" in
            --sim) machine=(--sim "${(Q)gpuws_words[i + 1]}") ;;
            --sim=*) machine=(--sim "${(Q)gpuws_words[i]#--sim=}") ;;
        esac
    done
    compset -P '*,'
    case $kind in
        host-values) _hosts; return ;;
        machine-values) machine=(); _files ;;
        user-values) _users ;;
    esac
    lines=("${(@f)$(gpuws completions $kind --deadline 2s $machine 2>/dev/null)}")
    lines=("${(@)lines:#}")
    values=("${(@)lines%%$'\t'*}")
    lines=("${(@)lines/$'\t'/  }")
    compadd "$@" -l -d lines -a values
}

