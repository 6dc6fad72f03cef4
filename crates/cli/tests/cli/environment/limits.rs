//! Resource limits of the shell that starts gpuws: `ulimit -f` and `ulimit -n`.

use crate::live::{out, reported, script};

/// Creates an audit log that is longer than any limit below, like one of a year.
const LONG_LOG: &str = "head -c 200000 /dev/zero | tr '\\0' '\\n' > $GPUWS_SIM_SESSION/audit.jsonl\n\
                        chmod 600 $GPUWS_SIM_SESSION/audit.jsonl\n";

#[test]
fn file_size_limit_does_not_prevent_run_cleanup() {
    let output = script(
        "twelve-gpus",
        &format!(
            "{LONG_LOG}\
             (ulimit -f 1; exec \"$0\" run --time-limit 1s --grace 1s -- \\\n\
              sh -c 'echo $$ > job; trap \"\" TERM; exec > /dev/null 2>&1; \
                n=0; until [ $n = 900 ]; do n=$((n+1)); sleep 0.1; done'); echo $?\n\
             kill -0 $(cat job) 2> /dev/null; echo $?; leases | grep -o '\"leases\":\\[\\]'\n\
             kill -KILL $(cat job) 2> /dev/null; true"
        ),
    );
    assert_eq!(out(&output), "124\n1\n\"leases\":[]\n", "{output:?}");
    let output_text = reported(&output);
    assert!(
        output_text.contains("warning: the audit log is incomplete: failed to write"),
        "{output_text}"
    );
}

#[test]
fn file_size_limit_fails_reap_with_error() {
    let output = script(
        "twelve-gpus",
        &format!(
            "{LONG_LOG}\
             (use_gpu 500) & job=$!\n\
             listed() {{ \"$0\" status --json | tr -d ' \\n' | grep -q \"\\\"pid\\\":$job,\"; }}\n\
             until_so listed\n\
             (ulimit -f 1; exec \"$0\" reap --pid $job --yes >&2); echo $?\n\
             kill -0 $job; echo $?; kill $job; wait $job 2> /dev/null"
        ),
    );
    assert_eq!(out(&output), "4\n0\n", "{output:?}");
    assert!(reported(&output).contains("failed to write journal"), "{output:?}");
}

#[test]
fn command_inherits_sigxfsz_disposition() {
    // SIGXFSZ is signal 25: its bit in the mask is not set, and a write beyond the limit is fatal.
    let output = script(
        "twelve-gpus",
        "\"$0\" run -- sh -c 'grep SigIgn: /proc/self/status | cut -f2; ulimit -f 1; \
           (head -c 999999 /dev/zero > big); echo $?'\n\
         sh -c 'trap \"\" XFSZ; exec \"$0\" run -- grep SigIgn: /proc/self/status' \"$0\" | cut -f2",
    );
    let output_text = out(&output);
    let lines: Vec<&str> = output_text.lines().collect();
    let [mask, killed, kept] = lines[..] else { panic!("{output:?}") };
    let is_ignored = |mask: &str| u64::from_str_radix(mask, 16).unwrap() & 1 << 24 != 0;
    assert!(!is_ignored(mask) && killed == "153", "{output:?}");
    assert!(is_ignored(kept), "what was ignored before stays so: {output:?}");
}

#[test]
fn fd_limit_is_raised_for_supervisor_only() {
    let output = script(
        "twelve-gpus",
        "ulimit -S -n 64; ulimit -H -n 512\n\
         \"$0\" run -- sh -c 'ulimit -S -n; ulimit -H -n; n=0; \
           until grep -q \"Max open files  *512  *512\" /proc/$PPID/limits; do \
             n=$((n+1)); [ $n -lt 4800 ] || exit 1; sleep 0.05; done; echo raised'",
    );
    assert_eq!(out(&output), "64\n512\nraised\n", "{output:?}");
}
