//! `gpuws run` whose frontend, supervisor, or both are killed: depending on the option, no process
//! of the job remains, or all of them continue.

use crate::live::{out, reported, script};
use crate::program::is_deep;

/// Starts a run whose command has a child and another one that left its process group and session.
/// `$front` and `$supervisor` are then set, and `pids` contains the three processes of the job.
const START: &str = r#"
start() {
  setsid "$0" run --gpu 7 --grace 2s --on-death $1 -- sh -c '
    setsid sh -c "echo \$\$ >> pids; exec sleep 60" & sleep 60 & echo $! >> pids
    echo $$ >> pids; echo $$ > job; echo $PPID > supervisor; wait' train.py & front=$!
  three() { [ "$(cat pids | wc -l)" = 3 ] && [ -s supervisor ]; }
  until_so three 2> /dev/null; supervisor=$(cat supervisor)
}
lives() { case "$(cut -d ' ' -f 3 /proc/$1/stat 2> /dev/null)" in ''|Z) false;; esac; }
gone() { for pid in $(cat pids); do ! lives $pid || return 1; done; }
ends() { until_so gone; "$0" run --gpu 7 --timeout 20s -- echo all gone and free; }
stays() {
  sleep 0.5; for pid in $(cat pids); do lives $pid && echo lives; done
  "$0" run --gpu 7 --no-wait -- true; echo $?
  kill $(cat pids); "$0" run --gpu 7 --timeout 20s -- echo free
}
"#;

/// Ways to kill, and whether a process remains that reports it.
const WAYS: [(&str, bool); 5] = [
    ("kill -KILL $front", false),
    ("kill -KILL $supervisor", true),
    // Like `kill -9 %1` in a shell and `timeout -s KILL`.
    ("kill -s KILL -- -$front", false),
    // Like `pkill -f` with the command's name.
    ("kill -KILL $front $(cat job)", false),
    // Both at one moment.
    ("kill -STOP $supervisor && kill -KILL $front $(cat job) && kill -CONT $supervisor", false),
];

#[test]
fn killing_any_part_leaves_no_job_process() {
    for (way, says) in WAYS {
        let output =
            script("twelve-gpus", &format!("{START}start end; {way} || echo not killed; ends"));
        assert_eq!(out(&output), "all gone and free\n", "{way}: {output:?}");
        let output_text = reported(&output).contains("supervisor was killed; ending the job");
        assert_eq!(output_text, says, "{way}: {output:?}");
    }
}

#[test]
fn job_keeps_running_with_lease_if_requested() {
    for (way, says) in &WAYS[..3] {
        let output =
            script("twelve-gpus", &format!("{START}start keep; {way} || echo not killed; stays"));
        assert_eq!(out(&output), "lives\nlives\nlives\n75\nfree\n", "{way}: {output:?}");
        let output_text = reported(&output).contains("the job continues and keeps its lease");
        assert_eq!(output_text, *says, "{way}: {output:?}");
    }
}

#[test]
fn orphaned_frontend_ends_with_job() {
    let output = script(
        "twelve-gpus",
        &format!(
            "{START}start end; kill -KILL $supervisor; wait $front; echo $?; gone && echo gone"
        ),
    );
    assert_eq!(out(&output), "137\ngone\n", "{output:?}");
    // The job may be starting a command at that moment.
    assert!(reported(&output).contains(" processes ended"), "{output:?}");
}

#[test]
fn killing_by_name_does_not_match_supervisor() {
    let output = script(
        "twelve-gpus",
        &format!(
            "{START}start end; cat /proc/$supervisor/comm\n\
             tr '\\0' ' ' < /proc/$supervisor/cmdline | cut -d ' ' -f 1\n\
             grep -c -e train -e gpuws /proc/$supervisor/cmdline; kill -KILL $front; ends"
        ),
    );
    let output_text = "run-supervisor\nrun-supervisor\n0\nall gone and free\n";
    assert_eq!(out(&output), output_text, "{output:?}");
}

#[test]
fn killed_frontend_ends_whole_tree() {
    // The whole process group, including timeout itself, so the shell reports 137.
    let output = script(
        "twelve-gpus",
        "timeout -s KILL 2 \"$0\" run --gpu 7 --grace 1s -- \
         sh -c 'setsid sleep 60 & echo $! > pids; echo $$ >> pids; wait'; echo $?\n\
         gone() { for pid in $(cat pids); do ! kill -0 $pid 2> /dev/null || return 1; done; }\n\
         until_so gone; \"$0\" run --gpu 7 --timeout 20s -- echo free",
    );
    assert_eq!(out(&output), "137\nfree\n", "{output:?}");
}

#[test]
fn preexisting_child_is_not_part_of_job() {
    let output = script(
        "twelve-gpus",
        r#"sh -c 'sleep 60 & echo $! > before
             exec "$0" run --gpu 7 -- sh -c "echo \$PPID > supervisor; sleep 60"' "$0" & front=$!
           until_so test -s supervisor; kill -KILL $(cat supervisor); wait $front; echo $?
           kill -0 $(cat before) && echo lives; kill $(cat before)
           "$0" run --gpu 7 --timeout 20s -- echo free"#,
    );
    assert_eq!(out(&output), "137\nlives\nfree\n", "{output:?}");
}

#[test]
fn nested_run_ends_with_outer_run() {
    let output = script(
        "twelve-gpus",
        r#""$0" run -n 2 --gpu 7,8 -- sh -c '
             echo $PPID > supervisor; "$0" run -- sh -c "echo \$\$ > pid; sleep 60"' "$0" & front=$!
           until_so test -s pid; kill -KILL $(cat supervisor); wait $front; echo $?
           kill -0 $(cat pid) 2> /dev/null || echo gone
           "$0" run -n 2 --gpu 7,8 --timeout 20s -- echo free"#,
    );
    assert_eq!(out(&output), "137\ngone\nfree\n", "{output:?}");
}

#[test]
fn frontend_with_existing_children_is_watched() {
    let output = script(
        "twelve-gpus",
        r#"sh -c 'sleep 60 & echo $! > before
             exec "$0" run --gpu 7 --grace 2s -- sh -c "
               setsid sleep 60 & echo \$! > pids; echo \$\$ >> pids; wait"' "$0" & front=$!
           two() { [ "$(cat pids | wc -l)" = 2 ]; }
           until_so two 2> /dev/null; kill -KILL $front
           gone() { for pid in $(cat pids); do ! kill -0 $pid 2> /dev/null || return 1; done; }
           until_so gone; kill -0 $(cat before) && echo lives; kill $(cat before)
           "$0" run --gpu 7 --timeout 20s -- echo free"#,
    );
    assert_eq!(out(&output), "lives\nfree\n", "{output:?}");
}

#[test]
fn unopenable_audit_log_does_not_prevent_cleanup() {
    let output = script(
        "twelve-gpus",
        &format!(
            "{START}start end; ln $GPUWS_SIM_SESSION/audit.jsonl twin; kill -KILL $supervisor\n\
             wait $front; echo $?; gone && echo gone; rm twin\n\
             \"$0\" run --gpu 7 --timeout 20s -- echo free"
        ),
    );
    assert_eq!(out(&output), "137\ngone\nfree\n", "{output:?}");
    let reported = reported(&output);
    assert!(reported.contains("3 processes ended"), "{reported}");
    assert!(reported.contains("the audit log is incomplete: failed to open journal"), "{reported}");
}

#[test]
fn unopenable_session_does_not_prevent_cleanup() {
    let output = script(
        "twelve-gpus",
        &format!(
            "{START}start end; mv $GPUWS_SIM_SESSION aside; kill -KILL $supervisor\n\
             wait $front; echo $?; gone && echo gone; mv aside $GPUWS_SIM_SESSION\n\
             \"$0\" run --gpu 7 --timeout 20s -- echo free"
        ),
    );
    assert_eq!(out(&output), "137\ngone\nfree\n", "{output:?}");
    // The job may be starting a command at that moment.
    assert!(reported(&output).contains(" processes ended"), "{output:?}");
}

/// Forks, ends the parent, and leaves process group and session, repeatedly for half a minute.
const CHAIN: &str = "import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
open('begun', 'w').close()
end, pause = time.time() + 30, float(sys.argv[1])
while time.time() < end:
    if os.fork():
        os._exit(0)
    os.setsid()
    time.sleep(pause)
";

#[test]
fn endlessly_forking_job_is_ended() {
    let ways =
        [("--time-limit 2s", ":"), ("", "kill -KILL $front"), ("", "kill -KILL $(cat supervisor)")];
    for (number, pause) in ["0.002", "0.0003", "0"].into_iter().enumerate() {
        // Each pause and each way once, and in deep tests each pair.
        let ways = if is_deep() { &ways[..] } else { &ways[number..=number] };
        for (options, way) in ways {
            // It has inherited the lease. On a busy machine, the time limit may end before it
            // starts.
            let output = script(
                "twelve-gpus",
                &format!(
                    "begun() {{ test -e begun || case $(cut -d ' ' -f 3 /proc/$front/stat) in \
                     Z) ;; *) false;; esac; }}\n\
                     \"$0\" run --gpu 7 --grace 500ms {options} -- sh -c '\
                     echo $PPID > supervisor; python3 -c \"$1\" {pause}; sleep 60' sh '{}' & \
                     front=$!; until_so begun; {way}\n\
                     \"$0\" run --gpu 7 --timeout 60s -- echo free",
                    CHAIN.replace('\'', "'\\''")
                ),
            );
            assert_eq!(out(&output), "free\n", "{pause} {options} {way}: {output:?}");
        }
    }
}

#[test]
fn inherited_signal_mask_is_restored_for_job() {
    let output = script(
        "twelve-gpus",
        r#"python3 -c 'import os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [15])
os.execv(sys.argv[1], sys.argv[1:])' "$0" run --gpu 7 -- python3 -c 'import signal, sys
print("blocked" if 15 in signal.pthread_sigmask(signal.SIG_BLOCK, []) else "not blocked")
sys.stdout.flush()
signal.signal(15, lambda *_: sys.exit(3))
open("ready", "w").close()
signal.pthread_sigmask(signal.SIG_UNBLOCK, [15])
signal.pause()' & front=$!
           until_so test -e ready; kill -TERM $front; wait $front; echo $?"#,
    );
    assert_eq!(out(&output), "blocked\n3\n", "{output:?}");
}
