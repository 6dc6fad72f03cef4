# Prints the values for the last item of a list: those of a kind that gpuws prints, or fish itself.
# fish quotes them as the word to insert.
function __gpuws_values
    set -l words (commandline -opc)
    set -l machine
    for i in (seq (count $words))
        switch $words[$i]
            case --sim
                set machine --sim $words[(math $i + 1)]
            case '--sim=*'
                set machine --sim (string replace -- --sim= '' $words[$i])
        end
    end
    set -l before (string match -r -- '^.*,' (string replace -r -- '^--[^=]*=' '' (commandline -ct)))
    begin
        switch $argv[1]
            case host-values
                __fish_print_hostnames
            case machine-values
                gpuws completions machine-values
                __fish_complete_path (commandline -ct)
            case user-values
                gpuws completions user-values --deadline 2s $machine
                __fish_complete_users
            case '*'
                gpuws completions $argv[1] --deadline 2s $machine
        end
    end 2>/dev/null | while read -l line
        printf '%s%s\n' "$before" $line
    end
end

