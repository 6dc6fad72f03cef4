//! The messages of `gpuws run` on standard error, and the processes between the shell and the job.

use crate::live::{out, reported, script};

/// `start OPTIONS` starts a run; `supervisor`, `job` and `message` are then written, `$front` is set.
const START: &str = r#"
start() {
  rm -f supervisor job message
  "$0" run --gpu 7 --grace 1s "$@" -- sh -c "${BEFORE-}"'
    echo $PPID > supervisor; echo $$ > job; exec sleep 300' 2> message & front=$!
  until_so test -s job
}
lives() { case "$(cut -d ' ' -f 3 /proc/$1/stat 2> /dev/null)" in ''|Z) false;; esac; }
has() { grep -c -e "$1" message; }
"#;

#[test]
fn killed_supervisor_is_reported_unless_quiet_or_json() {
    let output = script(
        "twelve-gpus",
        &format!(
            "{START}for option in --time-limit=60s --quiet --json; do\n\
             start $option; kill -9 $(cat supervisor); wait $front; echo $?\n\
             lives $(cat job) || echo gone\n\
             has 'gpuws: supervisor was killed; ending the job$'; has 'gpuws: 1 process ended$'\n\
             done"
        ),
    );
    assert_eq!(out(&output), "137\ngone\n1\n1\n137\ngone\n0\n0\n137\ngone\n0\n0\n", "{output:?}");
}

#[test]
fn kept_job_is_announced_only_if_the_supervisor_was_killed() {
    let output = script(
        "twelve-gpus",
        &format!(
            "{START}start --on-death keep; kill -9 $(cat supervisor); wait $front; echo $?\n\
             has 'supervisor terminated by signal 9; the job continues'; kill $(cat job)\n\
             \"$0\" run --gpu 7 --timeout 20s -- true 2> /dev/null; echo $?\n\
             start --on-death keep; kill $(cat job); wait $front; echo $?\n\
             has 'the job continues'\n\
             start; kill -9 $(cat supervisor); wait $front; has 'the job continues'"
        ),
    );
    assert_eq!(out(&output), "137\n1\n0\n143\n0\n0\n", "{output:?}");
}

#[test]
fn killed_frontend_is_reported_if_the_job_ends_with_it() {
    let output = script(
        "twelve-gpus",
        &format!(
            "{START}alone() {{ ! lives $(cat supervisor); }}\n\
             BEFORE='trap \"\" TERM'; start; BEFORE=; kill -9 $front; until_so alone\n\
             lives $(cat job) || echo gone\n\
             has 'gpuws: frontend was killed; ending the job$'; has 'SIGKILL to [0-9]* sleep$'\n\
             start --on-death keep; kill -9 $front; sleep 0.5; lives $(cat job) && echo lives\n\
             kill $(cat job); until_so alone; has 'frontend was killed'"
        ),
    );
    assert_eq!(out(&output), "gone\n1\n1\nlives\n0\n", "{output:?}");
}

/// A claim that waits ends with the frontend, too, unless the job was to continue without it.
#[test]
fn claim_of_killed_frontend_is_withdrawn() {
    let output = script(
        "twelve-gpus",
        "\"$0\" run -n 12 -- sh -c 'touch runs; exec sleep 300' 2> /dev/null & holder=$!\n\
         until_so test -e runs; waits() { leases | grep -q '\"ahead_count\":0'; }\n\
         never() { ! leases | grep -q ahead_count; }\n\
         \"$0\" run --gpu 7 -- touch ended 2> /dev/null & front=$!\n\
         until_so waits; kill -9 $front; until_so never; echo withdrawn\n\
         \"$0\" run --gpu 7 --on-death keep -- touch kept 2> /dev/null & front=$!\n\
         until_so waits; kill -9 $front; sleep 2.5; waits && echo waits\n\
         kill $holder; until_so test -e kept; test -e ended || echo kept",
    );
    assert_eq!(out(&output), "withdrawn\nwaits\nkept\n", "{output:?}");
}

/// A second frontend adopts the processes that the supervisor leaves, so that older children of the
/// first one are not mistaken for them.
#[test]
fn second_frontend_starts_only_with_older_children() {
    let output = script(
        "twelve-gpus",
        r#"cat > inner <<'END'
"$1" run --quiet $2 -- sh -c '
  tr "\0" "\n" < /proc/$(cut -d " " -f 4 /proc/$PPID/stat)/cmdline | sed -n 2p'
END
cat > before <<'END'
sleep 300 & echo $! >> all; exec "$1" run --quiet $2 -- sh -c '
  tr "\0" "\n" < /proc/$(cut -d " " -f 4 /proc/$PPID/stat)/cmdline | sed -n 2p'
END
for options in '' '--on-death keep'; do
  sh inner "$0" "$options"; sh before "$0" "$options"; done; kill $(cat all)"#,
    );
    assert_eq!(out(&output), "run\nrun-beside\nrun\nrun\n", "{output:?}");
}

#[test]
fn granted_devices_are_named() {
    let output = script(
        "twelve-gpus",
        "\"$0\" run --gpu 3 -- true 2> one; \"$0\" run --gpu 4,9 -n 2 -- true 2> two\n\
         \"$0\" run -- true 2> chosen\n\
         \"$0\" run --gpu 7 -- sh -c 'touch runs; until test -e go; do sleep 0.05; done' 2> first &\n\
         until_so test -e runs; \"$0\" run --gpu 7 -- true 2> waited & until_so grep -q wait waited\n\
         touch go; wait; for run in one two chosen waited; do echo $run; grep '^gpuws: GPU' $run; done",
    );
    let name = "GeForce RTX 3090";
    let expected = format!(
        "one\ngpuws: GPU 3 {name}\ntwo\ngpuws: GPUs 4 and 9 {name}\nchosen\n\
         gpuws: GPU 8 {name} (keeps blocks of GPUs whole)\nwaited\ngpuws: GPU 7 {name}\n"
    );
    assert_eq!(out(&output), expected, "{output:?}");
}

#[test]
fn json_report_is_the_only_line_of_gpuws() {
    let output = script(
        "twelve-gpus",
        "\"$0\" run --json -- true 2> message; wc -l < message; head -c 1 message; echo\n\
         \"$0\" run --quiet -- true 2> message; wc -l < message\n\
         \"$0\" run -- true 2> message; sed -n '1p;$p' message | cut -c -32",
    );
    let expected = "1\n{\n0\ngpuws: simulated machine twelve-\ngpuws: done in ";
    assert!(out(&output).starts_with(expected), "{output:?}");
}

/// The exit status of the command is more important than its report.
#[test]
fn unwritable_report_is_a_warning() {
    let output = script(
        "twelve-gpus",
        // The report is longer than a block of 512 bytes; the lease is not.
        "(ulimit -f 1; exec \"$0\" run -n 3 --report report -- sh -c 'exit 7' 2>&1 | cat)\n\
         (ulimit -f 1; exec \"$0\" run -n 3 --quiet --report report -- sh -c 'exit 7'); echo $?",
    );
    let output_text = out(&output);
    assert!(output_text.contains("gpuws: warning: failed to write 'report': "), "{output:?}");
    assert!(output_text.ends_with("\n7\n"), "{output:?}");
}

#[test]
fn held_claim_ends_with_the_process_it_is_for() {
    let output = script(
        "twelve-gpus",
        "mkfifo pipe; sleep 300 & owner=$!\n\
         \"$0\" claim --gpu 6 --hold --for $owner < pipe > held & holder=$!\n\
         exec 3> pipe; until_so grep -qs VISIBLE held; kill $owner; wait $holder; echo $?\n\
         \"$0\" claim --gpu 6 --hold < pipe > again & holder=$!\n\
         until_so grep -qs VISIBLE again; echo more >&3; sleep 0.2; kill -0 $holder && echo holds\n\
         kill -HUP $holder; wait $holder; echo $?; leases | grep -c '\"leases\":\\[\\]'",
    );
    assert_eq!(out(&output), "0\nholds\n0\n1\n", "{output:?}");
    assert_eq!(reported(&output), "", "{output:?}");
}
