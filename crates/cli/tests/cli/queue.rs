//! The queue of claims, with real runs: many runs are served, and a stopped one blocks no other.

use crate::live::{out, reported, script};

/// Starts a claim on all devices behind a lease, stops it, and lets that lease end: from then on it
/// could be granted, but does not react. `missed_beats` makes its last renewal 40 seconds old: the
/// modification time of its entry is the monotonic clock's.
const STOPPED: &str = r#"
own_group() { exec python3 -c 'import os, sys
os.setpgid(0, 0); os.execv(sys.argv[1], sys.argv[1:])' "$@"; }
place() { ls "$GPUWS_SIM_SESSION"/claims/u*/queue/place-* 2> /dev/null; }
one_waits() { [ "$(place | wc -l)" = 1 ]; }
none_waits() { ! place > /dev/null; }
none_leased() { leases | grep -q '"leases":\[\]'; }
is_stopped() { for pid in $both; do
  [ "$(cut -d ' ' -f 3 /proc/$pid/stat)" = T ] || return 1; done; }
missed_beats() { touch -m -d "@$(($(stat -c %Y "$(place)") - 40))" "$(place)"; }

lease() { "$0" run --gpu 7 -- sh -c 'touch leased; until [ -e end ]; do sleep 0.05; done'; }

lease & first=$!
until_so test -e leased
eval "own_group $WIDE" > wide 2> wide-message & wide=$!
until_so one_waits; both="$wide $(cat /proc/$wide/task/$wide/children)"
[ $STOP = TSTP ] && SENT="-- -$wide" || SENT="$both"
trap 'touch end; kill -KILL $both 2> /dev/null' EXIT
kill -s $STOP $SENT; until_so is_stopped
touch end; wait $first; until_so none_leased
"#;

/// Both ways to wait, with their final message, and both ways to stop: Ctrl-Z, which a terminal
/// sends only to the frontend's process group, and SIGSTOP to each process. The second claim is
/// listed under the shell that it holds devices for.
const WAYS: [(&str, &str, &str); 2] = [
    ("TSTP", r#""$0" run -n 12 -- echo served"#, "served"),
    ("STOP", r#""$0" claim -n 12 --hold < /dev/null"#, "CUDA_VISIBLE_DEVICES="),
];

#[test]
fn stopped_claim_is_reported_skipped_and_resumes() {
    for (stop, wide, end) in WAYS {
        let output = script(
            "twelve-gpus",
            &format!(
                r#"STOP={stop}; WIDE='{wide}'
{STOPPED}
"$0" run --no-wait -- echo out of order; echo $?
missed_beats
for n in 1 2 3; do "$0" run --no-wait -- echo passed $n; done
rm leased end
lease & first=$!; until_so test -e leased
"$0" run -n 12 --timeout 1s -- true 2> message; echo $?
named=$(sed -n 's/.*ahead of PID \([0-9]*\) of .*, stopped.*/\1/p' message | head -1)
case " $both $$ " in *" $named "*) echo named;; esac
touch end; wait $first
is_stopped && kill -s CONT $SENT; 
until_so grep -q '{end}' wide; kill $wide 2> /dev/null; wait $wide; echo $?; none_waits && echo none waits"#
            ),
        );
        let output_text = "75\npassed 1\npassed 2\npassed 3\n75\nnamed\n0\nnone waits\n";
        assert_eq!(out(&output), output_text, "{wide}: {output:?}");
    }
}

/// Runs that start at once, on eight devices.
const CROWD: usize = 80;

#[test]
fn many_waiting_runs_are_all_served() {
    let output = script(
        "dgx1-v100",
        &format!(
            r#"n=0; while [ $n -lt {CROWD} ]; do n=$((n+1))
               ("$0" run -- sh -c 'echo $CUDA_VISIBLE_DEVICES >> served' 2>> message; echo $? >> codes) &
             done; wait
             sort codes | uniq -c; wc -l < served; grep -c failed message
             leases | grep -c '"leases":\[\],"queue":\[\]'"#
        ),
    );
    let output_text: Vec<String> = out(&output).split_whitespace().map(str::to_owned).collect();
    assert_eq!(output_text, [&CROWD.to_string(), "0", &CROWD.to_string(), "0", "1"], "{output:?}");
    assert!(!reported(&output).contains("panicked"), "{output:?}");
}
