//! Command lines of nvidia-smi for gpuws.

use std::ffi::{OsStr, OsString};

/// Returns the words, with the name of the program, with which gpuws prints what nvidia-smi prints
/// with these arguments. Options that gpuws does not have stay, so that it refuses them.
pub fn as_gpuws(arguments: &[OsString]) -> Vec<OsString> {
    let has = |names: &[&str]| arguments.iter().any(|word| names.iter().any(|name| word == name));
    let starts = |start: &str| {
        arguments.iter().any(|word| word.as_encoded_bytes().starts_with(start.as_bytes()))
    };
    let is_command = ["dmon", "pmon", "topo", "--version"];
    let before: &[&str] =
        if arguments.first().is_some_and(|first| is_command.iter().any(|command| first == command))
        {
            &[]
        } else if starts("--query-") || starts("--help-query-") {
            &["query"]
        } else if has(&["-q", "--query"]) {
            &["status", "--details"]
        } else if has(&["-L", "--list-gpus"]) {
            &["status"]
        } else {
            &["status", "--format", "nvidia-smi"]
        };
    let is_kept = |word: &&OsString| *word != "-q" && *word != "--query";
    let words = ["gpuws"].iter().chain(before).map(OsString::from);
    words.chain(arguments.iter().filter(is_kept).cloned()).collect()
}

/// Options of nvidia-smi that change a GPU, and what to type instead.
pub const SETTERS: [(&str, &str); 5] = [
    ("--gpu-reset", "gpuws reset 0"),
    ("--persistence-mode", "sudo nvidia-smi --persistence-mode=1"),
    ("--compute-mode", "sudo nvidia-smi --compute-mode=0"),
    ("--power-limit", "sudo nvidia-smi --power-limit=250"),
    ("--lock-gpu-clocks", "sudo nvidia-smi --lock-gpu-clocks=1200,1400"),
];

/// Replaces nvidia-smi's `-lms` and `-p2p`, long options with a single dash, with `--loop-ms` and
/// `--p2p`, in a command line of gpuws.
pub fn usual_spelling(words: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let usual = |word: OsString| match word.to_str() {
        Some("-lms") => OsStr::new("--loop-ms").to_owned(),
        Some("-p2p") => OsStr::new("--p2p").to_owned(),
        Some(text) => match text.strip_prefix("-lms=") {
            Some(value) => format!("--loop-ms={value}").into(),
            None => word,
        },
        None => word,
    };
    // Only for the commands that have this option, and never in the arguments of a wrapped command.
    let (mut views, mut ours) = (false, true);
    words
        .map(|word| {
            views |= word == "query" || word == "status" || word == "topo";
            ours &= word != "--";
            if views && ours { usual(word) } else { word }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_output_of_nvidia_smi_has_a_command() {
        for (arguments, words) in [
            ("", "gpuws status --format nvidia-smi"),
            ("-i 0 -l 1", "gpuws status --format nvidia-smi -i 0 -l 1"),
            ("-L", "gpuws status -L"),
            ("-q -x -i 0", "gpuws status --details -x -i 0"),
            ("--query -x", "gpuws status --details -x"),
            ("--query-gpu=index --format=csv", "gpuws query --query-gpu=index --format=csv"),
            ("--help-query-gpu", "gpuws query --help-query-gpu"),
            ("dmon -s u", "gpuws dmon -s u"),
            ("topo -m", "gpuws topo -m"),
            ("--gpu-reset -i 0", "gpuws status --format nvidia-smi --gpu-reset -i 0"),
        ] {
            let split = |text: &str| -> Vec<OsString> {
                text.split_whitespace().map(OsString::from).collect()
            };
            assert_eq!(as_gpuws(&split(arguments)), split(words), "{arguments}");
        }
    }
}
