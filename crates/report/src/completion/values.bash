# Completes the last item of a list with values of a kind that gpuws prints, or the shell itself.
# Values are never evaluated: printf quotes them as the word to insert.
_gpuws_values() {
    local item="${cur##*,}" value quoted i
    local before="${cur%"${item}"}" machine=()
    for ((i = 1; i < COMP_CWORD; i++)); do
        [[ "${COMP_WORDS[i]}" == --sim ]] || continue
        [[ "${COMP_WORDS[i + 1]}" == "=" ]] && ((i++))
        machine=(--sim "${COMP_WORDS[i + 1]}")
    done
    # Where no machine matches, bash completes a path.
    [[ "$1" == machine-values ]] || compopt +o default +o bashdefault 2>/dev/null
    while IFS=$'\t' read -r value _; do
        printf -v quoted %q "${value}"
        if [[ "${value}" == "${item}"* || "${quoted}" == "${item}"* ]]; then
            COMPREPLY+=("${before}${quoted}")
        fi
    done < <(
        case "$1" in
            host-values) compgen -A hostname ;;
            machine-values) gpuws completions machine-values ;;
            *) gpuws completions "$1" --deadline 2s "${machine[@]}" ;;
        esac 2>/dev/null
        [[ "$1" != user-values ]] || compgen -u
    )
}

