//! A `/proc` that hides the processes of other users (`hidepid`, proc(5)).

use crate::environment::{is_root, skip};
use crate::live::{GPUWS, text};
use std::process::Command;

/// Runs a script as an unprivileged user in a live session, with `/proc` mounted with this option;
/// `None`, with a note, if that is impossible here.
fn hidden(test: &str, option: &str, script: &str) -> Option<(i32, String, String)> {
    if !is_root(test) {
        return None;
    }
    let enter = "mount -t proc -o \"$1\" proc /proc || exit 97\n\
                 as_user() { setpriv --reuid=65534 --regid=65534 --clear-groups \"$@\"; }\n\
                 as_user test -x \"$2\" || exit 98\n\
                 cd /tmp && as_user env -u XDG_RUNTIME_DIR -u LD_LIBRARY_PATH \
                   -u GPUWS_SIM_SESSION -u GPUWS_CLAIMS -u CUDA_VISIBLE_DEVICES \
                   HOME=/nonexistent NO_COLOR=1 \
                   \"$2\" sim twelve-gpus --live -- sh -c \"$3\" \"$2\"\n";
    let output = Command::new("unshare")
        .args(["--mount", "timeout", "-s", "KILL", "120"])
        .args(["sh", "-c", enter, "sh", option, GPUWS, script])
        .output();
    let output = match output {
        Ok(output) => output,
        Err(error) => {
            skip(test, &format!("unshare cannot be run: {error}"));
            return None;
        }
    };
    let (output_text, reported) = (text(&output.stdout), text(&output.stderr));
    match output.status.code() {
        Some(97) => skip(test, &format!("no {option}: {}", reported.trim())),
        Some(98) => skip(test, "another user may not run this gpuws"),
        None | Some(1) if output_text.is_empty() && reported.contains("unshare") => {
            skip(test, reported.trim())
        }
        code => return Some((code.unwrap_or(-1), output_text, reported)),
    }
    None
}

#[test]
fn run_claim_and_reap_work_with_hidepid() {
    const TEST: &str = "run_claim_and_reap_work_with_hidepid";
    for option in ["hidepid=1", "hidepid=2"] {
        let commands = "\"$0\" run -n 2 -- sh -c 'echo ran; \"$0\" run -- echo within' \"$0\"; echo $?\n\
                        \"$0\" claim -n 2 > /dev/null; echo $?\n\
                        \"$0\" claim -n 2 --export > /dev/null; echo $?\n\
                        \"$0\" leases > /dev/null; echo $?\n\
                        \"$0\" status > /dev/null; echo $?\n\
                        \"$0\" doctor > /dev/null; echo $?\n\
                        \"$GPUWS_SIM_SESSION/nvml-sim-process\" --use 11:500 & job=$!\n\
                        n=0; until \"$0\" status --json | tr -d ' \\n' | grep -q \"\\\"pid\\\":$job,\"\n\
                        do n=$((n+1)); [ $n -lt 4800 ] || exit 99; sleep 0.05; done\n\
                        \"$0\" reap --pid $job --yes > /dev/null; echo $?; wait $job; echo $?";
        let Some((code, output_text, reported)) = hidden(TEST, option, commands) else { return };
        assert_eq!(code, 0, "{option}: {output_text}{reported}");
        assert_eq!(output_text, "ran\nwithin\n0\n0\n0\n0\n0\n0\n0\n143\n", "{option}: {reported}");
    }
}

#[test]
fn hint_names_hidepid() {
    const TEST: &str = "hint_names_hidepid";
    for option in ["hidepid=1", "hidepid=2"] {
        let commands = "\"$0\" claim --hold --for 1";
        let Some((_, _, reported)) = hidden(TEST, option, commands) else { return };
        assert!(reported.contains("hidepid"), "{option}: {reported}");
    }
}
