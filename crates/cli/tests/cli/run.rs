//! `gpuws run`, `claim` and `leases` on real processes, in sessions of the simulated NVML.

use crate::live::{GPUWS, out, reported, script, text};
use std::io::Write as _;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

#[test]
fn exit_code_and_signal_of_command_are_propagated() {
    let code =
        |command: &str| script("twelve-gpus", &format!("\"$0\" run -- {command}; echo $?")).stdout;
    assert_eq!(text(&code("true")), "0\n");
    assert_eq!(text(&code("sh -c 'exit 42'")), "42\n");
    assert_eq!(text(&code("sh -c 'kill -TERM $$'")), "143\n");
    assert_eq!(text(&code("sh -c 'kill -KILL $$'")), "137\n");
    assert_eq!(text(&code("/nobody/has/this")), "127\n");
    assert_eq!(text(&code("/dev/null")), "126\n");
}

#[test]
fn gpuws_dies_by_same_signal_as_command() {
    // A shell reports 143 for both a code and a signal; only the parent can distinguish them.
    let output = script(
        "twelve-gpus",
        "python3 -c 'import subprocess, sys\n\
         print(subprocess.run([sys.argv[1], \"run\", \"--\", \"sh\", \"-c\", \"kill -TERM $$\"])\
         .returncode)' \"$0\"",
    );
    assert_eq!(out(&output), "-15\n", "{output:?}");
}

#[test]
fn command_sees_only_its_devices() {
    let output = script(
        "twelve-gpus",
        "\"$0\" run -n 12 --visible index -- sh -c 'echo $CUDA_VISIBLE_DEVICES $CUDA_DEVICE_ORDER'\n\
         \"$0\" run --gpu 3 -- sh -c 'echo $CUDA_VISIBLE_DEVICES'\n\
         \"$0\" query --query-gpu=uuid --format=csv,noheader -i 3 2>/dev/null",
    );
    let output_text = out(&output);
    let lines: Vec<&str> = output_text.lines().collect();
    let [all, third, uuid] = lines[..] else { panic!("{output:?}") };
    assert_eq!(all, "0,1,2,3,4,5,6,7,8,9,10,11 PCI_BUS_ID");
    assert_eq!(third, uuid);
    assert!(uuid.starts_with("GPU-"), "{uuid}");
}

#[test]
fn inherited_visible_list_is_narrowed_never_widened() {
    let output = script(
        "twelve-gpus",
        "export CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=5,11\n\
         \"$0\" run -n 2 --visible index -- sh -c 'echo $CUDA_VISIBLE_DEVICES'\n\
         \"$0\" run --gpu 11 --visible index -- sh -c 'echo $CUDA_VISIBLE_DEVICES'\n\
         \"$0\" run --gpu 4 -- true; echo $?\n\
         \"$0\" run -n 3 -- true; echo $?\n\
         CUDA_VISIBLE_DEVICES= \"$0\" run -- true; echo $?",
    );
    assert_eq!(out(&output), "5,11\n11\n2\n2\n2\n", "{output:?}");
}

#[test]
fn leftover_device_process_is_ended_and_memory_freed() {
    let output = script(
        "twelve-gpus",
        "\"$0\" run --gpu 2 -- sh -c \"$(cat <<'END'\n\
         setsid \"$GPUWS_SIM_SESSION/nvml-sim-process\" --use visible:3000 &\n\
         until python3 let-go.py 2> /dev/null; do sleep 0.05; done; exit 7\n\
         END\n\
         )\" \"$0\"; echo $?; \"$0\" status -i 2 --json | tr -d ' \\n'; \"$0\" leases --json | tr -d ' \\n'",
    );
    let (output_text, reported) = (out(&output), reported(&output));
    assert!(output_text.starts_with("7\n"), "{output:?}");
    assert!(output_text.contains("\"processes\":[]"), "{output_text}");
    assert!(output_text.contains("\"leases\":[],\"queue\":[]"), "{output_text}");
    assert!(reported.contains("SIGTERM to ") && reported.contains(" (left behind)"), "{reported}");
    assert!(reported.contains("peak 2.9 GiB"), "{reported}");
    assert!(reported.contains("1 process left behind was ended, memory freed"), "{reported}");
}

#[test]
fn leftover_process_without_device_is_kept() {
    let output = script(
        "twelve-gpus",
        "\"$0\" run -- sh -c 'sleep 300 >/dev/null 2>&1 & echo $!' > pid-$$\n\
         kill -0 $(cat pid-$$) && echo alive; kill $(cat pid-$$); rm pid-$$",
    );
    assert_eq!(out(&output), "alive\n", "{output:?}");
}

#[test]
fn time_limit_ends_whole_process_tree() {
    let output = script(
        "twelve-gpus",
        "\"$0\" run --time-limit 1s --grace 1s -- \
         sh -c 'trap \"\" TERM; sleep 300 & echo $!; echo $$; wait; wait' > pids-$$; echo $?\n\
         for pid in $(cat pids-$$); do kill -0 $pid 2>/dev/null && echo $pid lives; done; rm pids-$$",
    );
    assert_eq!(out(&output), "124\n", "{output:?}");
    assert!(reported(&output).contains("time limit reached; ending the job"), "{output:?}");
}

#[test]
fn fast_forking_job_ends_at_time_limit() {
    let output = script(
        "twelve-gpus",
        r#"cat > chain.py <<'END'
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
end = time.monotonic() + 60
while time.monotonic() < end:
    with open("beat", "a") as beat:
        beat.write(".")
    if os.fork():
        os._exit(0)
    time.sleep(0.02)
END
           "$0" run --gpu 7 --time-limit 2s --grace 1s -- sh -c 'python3 chain.py & sleep 60'; echo $?
           # On a machine that is busy the time may be over before it has begun.
           >> beat; cp beat then; sleep 0.5; cmp beat then && echo still
           "$0" run --gpu 7 --no-wait -- echo free"#,
    );
    assert_eq!(out(&output), "124\nstill\nfree\n", "{output:?}");
    let reported = reported(&output);
    assert!(!reported.contains("note: ") && !reported.contains("warning: "), "{reported}");
}

#[test]
fn nested_run_uses_devices_of_outer_run() {
    let output = script(
        "twelve-gpus",
        "\"$0\" run -n 2 --gpu 4,9 --visible index -- sh -c '\n\
         echo $CUDA_VISIBLE_DEVICES\n\
         \"$0\" run --visible index -- sh -c \"echo \\$CUDA_VISIBLE_DEVICES\"\n\
         \"$0\" run -n 2 --mem 10GiB --visible index -- sh -c \"echo \\$CUDA_VISIBLE_DEVICES\"\n\
         \"$0\" run -n 3 -- true; echo $?\n\
         unset CUDA_VISIBLE_DEVICES; \"$0\" run -n 3 -- true; echo $?\n\
         \"$0\" run --gpu 0 -- true; echo $?' \"$0\"",
    );
    let output_text = out(&output);
    let lines: Vec<&str> = output_text.lines().collect();
    let [outer, one, shares, more, hidden, other] = lines[..] else { panic!("{output:?}") };
    assert_eq!(outer, "4,9");
    assert!(["4", "9"].contains(&one), "{output:?}");
    assert_eq!((shares, more, hidden, other), ("4,9", "2", "2", "2"), "{output:?}");
}

/// Returns whether this machine permits a new namespace with these arguments.
pub(crate) fn may_unshare(words: &str) -> bool {
    let words = words.split(' ');
    let may = std::process::Command::new("unshare").args(words).args(["--fork", "true"]).output();
    let may = may.is_ok_and(|output| output.status.success());
    if !may {
        let _ = writeln!(std::io::stderr(), "skipped: no namespace of its own is permitted here");
    }
    may
}

#[test]
fn nested_run_in_other_namespace_uses_devices_of_outer_run() {
    for namespace in ["--time --boottime 1000", "--time --boottime 100000", "--pid --mount-proc"] {
        if !may_unshare(namespace) {
            continue;
        }
        let output = script(
            "twelve-gpus",
            &format!(
                "\"$0\" run -n 2 --gpu 4,9 --visible index -- sh -c '\n\
                 inside=\"unshare {namespace} --fork\"\n\
                 $inside \"$0\" run --no-wait --visible index -n 2 -- sh -c \"echo \\$CUDA_VISIBLE_DEVICES\"\n\
                 $inside \"$0\" run --no-wait -n 3 -- true; echo $?' \"$0\""
            ),
        );
        assert_eq!(out(&output), "4,9\n2\n", "{namespace}: {output:?}");
    }
}

/// In a new PID namespace, the kernel shows process groups of other namespaces as 0.
#[test]
fn process_group_without_visible_id_is_not_an_error() {
    let namespace = "--pid --mount-proc";
    if !may_unshare(namespace) {
        return;
    }
    let output = script(
        "twelve-gpus",
        &format!(
            "unshare {namespace} --fork sh -c '\n\
             \"$0\" run -- sh -c \"kill -INT \\$\\$\"; echo $?\n\
             sleep 60 & \"$0\" claim --export --for $! >/dev/null; echo $?; kill $!' \"$0\""
        ),
    );
    assert_eq!(out(&output), "130\n0\n", "{output:?}");
}

#[test]
fn unavailable_claim_waits_or_fails() {
    let output = script(
        "twelve-gpus",
        "\"$0\" run -n 12 -- sh -c 'echo held; until [ -e go-on ]; do sleep 0.05; done; rm go-on' \
         > held-$$ & \n\
         until_so grep -q held held-$$\n\
         \"$0\" run --no-wait -- true; echo $?\n\
         \"$0\" run --timeout 1s -- true; echo $?\n\
         \"$0\" run -n 3 -- echo served & waiter=$!\n\
         queued() { leases | grep -q '\"ahead_count\":0'; }\n\
         until_so queued; touch go-on; wait $waiter; echo $?; rm held-$$",
    );
    assert_eq!(out(&output), "75\n75\nserved\n0\n", "{output:?}");
    let reported = reported(&output);
    assert!(
        reported.contains("not available now")
            && reported.contains("not available within the timeout"),
        "{reported}"
    );
}

/// Runs a command in a pseudo-terminal until the spinner has advanced or the time is over, and ends
/// it; returns which of the two.
const AT_A_TERMINAL: &str = "import os, pty, select, signal, sys, time
pid, terminal = pty.fork()
if pid == 0: os.execvp(sys.argv[1], sys.argv[1:])
shown, end = b'', time.monotonic() + 30
while '⠙'.encode() not in shown and time.monotonic() < end:
    if select.select([terminal], [], [], 0.2)[0]: shown += os.read(terminal, 4096)
os.kill(pid, signal.SIGTERM)
os.waitpid(pid, 0)
lines = shown.decode(errors='replace').split('\\r\\x1b[K')
print(len(set(line[:-6] for line in lines[1:3])), lines[-1][:14])
";

#[test]
fn waiting_on_terminal_updates_single_line() {
    let output = script(
        "twelve-gpus",
        &format!(
            "cat > at.py << 'END'\n{AT_A_TERMINAL}END\n\
             \"$0\" run -n 12 -- sh -c 'touch runs; exec sleep 300' & front=$!\n\
             until_so test -e runs\n\
             for what in 'run -n 3 -- true' 'claim -n 3 --hold' 'claim -n 3 --export'; do\n\
             python3 at.py \"$0\" $what; done; kill $front; wait $front"
        ),
    );
    assert_eq!(out(&output), "1 gpuws: waiting\n".repeat(3), "{output:?}");
}

#[test]
fn memory_shares_coexist_up_to_device_memory() {
    let output = script(
        "twelve-gpus",
        "hold() { \"$0\" run --gpu 0 $1 -- sh -c 'echo held; exec sleep 300' > held-$2 & }\n\
         hold '--mem 10GiB' a; until_so grep -q held held-a; first=$!\n\
         hold '--mem 10GiB' b; until_so grep -q held held-b; second=$!\n\
         \"$0\" run --gpu 0 --mem 10GiB --no-wait -- true; echo $?\n\
         \"$0\" run --gpu 0 --no-wait -- true; echo $?\n\
         \"$0\" run --gpu 0 --mem 2GiB --no-wait -- true; echo $?\n\
         kill $first $second; wait $first $second\n\
         \"$0\" run --gpu 0 --timeout 20s -- true; echo $?; rm held-a held-b",
    );
    assert_eq!(out(&output), "75\n75\n0\n0\n", "{output:?}");
}

#[test]
fn used_device_is_refused_unless_accepted() {
    let output = script(
        "labbox",
        "for gpu in 0 1 2 3; do \"$0\" run --gpu $gpu --no-wait -- true; echo $?; done\n\
         \"$0\" run --gpu 3 --accept-used -- true; echo $?",
    );
    assert_eq!(out(&output), "75\n0\n75\n75\n0\n", "{output:?}");
    let reported = reported(&output);
    assert!(reported.contains("in use without a lease by "), "{reported}");
    assert!(reported.contains("in use that no process accounts for"), "{reported}");
    assert!(reported.contains("see holders with: gpuws status\n"), "{reported}");
    let line = "gpuws: warning: GPU 3: 15,774 MiB in use that no process accounts for\n";
    assert!(reported.contains(line), "{reported}");
}

#[test]
fn only_display_device_can_be_claimed() {
    let output = script("display-single", "\"$0\" run --no-wait -- echo mine; echo $?");
    assert_eq!(out(&output), "mine\n0\n", "{output:?}");
}

#[test]
fn exported_claim_lasts_until_shell_ends() {
    let output = script(
        "twelve-gpus",
        "sh -c 'eval \"$(\"$0\" claim -n 2 --export)\"\n\
         echo $CUDA_VISIBLE_DEVICES | tr -cd , | wc -c; echo $CUDA_DEVICE_ORDER\n\
         \"$0\" leases --json | grep -c \"^ *.uuid.:\"' \"$0\"\n\
         none() { leases | grep -q '\"leases\":\\[\\]'; }\n\
         until_so none; echo none",
    );
    let output_text = out(&output);
    let lines: Vec<&str> = output_text.lines().map(str::trim).collect();
    assert_eq!(lines, ["1", "PCI_BUS_ID", "2", "none"], "{output:?}");
}

#[test]
fn held_claim_lasts_while_pipe_is_open() {
    let output = script(
        "twelve-gpus",
        "mkfifo pipe-$$; \"$0\" claim --gpu 6 --hold < pipe-$$ > held-$$ & holder=$!\n\
         exec 3> pipe-$$; until_so grep -q CUDA_VISIBLE_DEVICES=GPU- held-$$\n\
         \"$0\" run --gpu 6 --no-wait -- true; echo $?\n\
         exec 3>&-; wait $holder; echo $?\n\
         \"$0\" run --gpu 6 --no-wait -- true; echo $?; rm pipe-$$ held-$$",
    );
    // Runs of a script may use what the script has claimed.
    assert_eq!(out(&output), "0\n0\n0\n", "{output:?}");
}

#[test]
fn invalid_requests_fail_immediately_without_locks() {
    let output = script(
        "twelve-gpus",
        "for words in '--mem 0GiB' '--mem 6' '-n 0' '-n 13' '--gpu 12' '--mem 30GiB' \
           '--gpu GPU-00000000-0000-0000-0000-000000000000' '--with 1 --not 1' '-n 1 --with 1,2' \
           '--timeout 0' '--no-wait --timeout 1s' '--capability x' '--claims /no/such/directory'; do\n\
         \"$0\" run $words -- touch ran; echo $?; done\n\
         test -e ran && echo ran; leases",
    );
    let output_text = out(&output);
    let mut lines: Vec<&str> = output_text.lines().collect();
    let leases = lines.pop().unwrap();
    assert_eq!(lines, ["2"; 13], "{output:?}");
    assert!(leases.contains("\"leases\":[],\"queue\":[]"), "{output:?}");
    assert_eq!(script("no-driver", "\"$0\" run -- true; echo $?").stdout, b"125\n");
    assert_eq!(script("no-driver", "\"$0\" claim --hold; echo $?").stdout, b"3\n");
}

#[test]
fn simulated_machine_refuses_to_run_jobs() {
    let output =
        Command::new(GPUWS).args(["--sim", "labbox", "run", "--", "true"]).output().unwrap();
    assert_eq!((output.status.code(), output.status.signal()), (Some(2), None), "{output:?}");
    assert!(reported(&output).contains("gpuws sim labbox --live -- gpuws run"), "{output:?}");
}

#[test]
fn held_claim_does_not_block_safe_gpu() {
    let output = script(
        "twelve-gpus",
        "mkfifo pipe; \"$0\" claim --hold < pipe > held & exec 3> pipe\n\
         until_so grep -q CUDA_VISIBLE_DEVICES held\n\
         sed 's/ | fcntl.LOCK_NB//' let-go.py > waits.py; ! cmp -s let-go.py waits.py\n\
         timeout 60 python3 waits.py && echo free\n\
         exec 3>&-",
    );
    assert_eq!(out(&output), "free\n", "{output:?}");
}

#[test]
fn claim_for_process_of_other_user_is_refused() {
    let output = script("twelve-gpus", "\"$0\" claim --export --for 1; echo $?; leases");
    assert!(out(&output).starts_with("(exit 2)\n2\n"), "{output:?}");
    assert!(out(&output).contains("\"leases\":[]"), "{output:?}");
}

#[test]
fn signal_while_waiting_ends_gpuws_by_the_same_signal() {
    let output = script(
        "labbox",
        "for what in 'run --gpu 0 -- true' 'claim --gpu 0 --hold'; do\n\
         python3 -c 'import subprocess, sys, time\n\
         waiter = subprocess.Popen(sys.argv[1:], stderr=subprocess.PIPE)\n\
         waiter.stderr.readline(); waiter.terminate(); print(waiter.wait())' \"$0\" $what; done",
    );
    assert_eq!(out(&output), "-15\n-15\n", "{output:?}");
}

#[test]
fn two_claims_of_one_script_get_different_devices() {
    let output = script(
        "twelve-gpus",
        "for n in 1 2; do mkfifo pipe-$n; \"$0\" claim --hold < pipe-$n > held-$n & done\n\
         exec 3> pipe-1 4> pipe-2\n\
         for n in 1 2; do until_so grep -q VISIBLE held-$n; done\n\
         grep -h VISIBLE held-* | sort -u | wc -l; exec 3>&- 4>&-\n\
         for n in 1 2; do ( eval \"$(\"$0\" claim --export)\"; echo $CUDA_VISIBLE_DEVICES ); done \
           | sort -u | wc -l",
    );
    assert_eq!(out(&output).split_whitespace().collect::<Vec<_>>(), ["2", "2"], "{output:?}");
}

#[test]
fn shim_dir_in_path_persists_and_is_not_writable_by_others() {
    let output = script("twelve-gpus", "\"$0\" run -- sh -c 'echo ${PATH%%:*}'");
    let dir = std::path::PathBuf::from(out(&output).trim());
    assert!(dir.join("nvidia-smi").exists(), "{output:?}");
    for dir in dir.ancestors() {
        let found = std::fs::metadata(dir).unwrap();
        let mode = std::os::unix::fs::MetadataExt::mode(&found);
        assert_eq!(mode & 0o022, 0, "{}", dir.display());
    }
}

#[test]
fn run_takes_linked_devices() {
    let output = script("dgx1-v100", "\"$0\" run -n 2 -- true");
    assert!(
        reported(&output).contains("GPUs 0 and 3 Tesla V100-SXM2-32GB (NVLink ×2"),
        "{output:?}"
    );
}
