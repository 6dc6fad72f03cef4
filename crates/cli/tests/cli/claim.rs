//! `gpuws claim`: the preview, and the release of a lease.

use crate::live::{GPUWS, out, reported, script};
use std::process::Command;

#[test]
fn exported_and_held_claims_can_be_released() {
    let output = script(
        "twelve-gpus",
        "mkfifo pipe; \"$0\" claim --gpu 6 --hold < pipe > held & holder=$!\n\
         exec 3> pipe; until_so grep -q VISIBLE held\n\
         \"$0\" claim --gpu 7 --export > /dev/null\n\
         \"$0\" leases | sed -n 's/: held by your claim. */: /p' > next; cut -d: -f1 next\n\
         while IFS=' ' read -r gpu number gpuws words; do \"$0\" $words 3>&-; echo $?; done < next \
           | sed 's/lease [0-9a-f]*/lease/'\n\
         leases; echo; wait $holder; echo $?",
    );
    let output_text = out(&output);
    let lines: Vec<&str> = output_text.lines().collect();
    let [first, second, one, code, other, other_code, leases, ended] = lines[..] else {
        panic!("{output:?}")
    };
    assert_eq!((first, second), ("GPU 6", "GPU 7"), "{output:?}");
    assert_eq!((one, code), ("released lease: GPU 6", "0"), "{output:?}");
    assert_eq!((other, other_code), ("released lease: GPU 7", "0"), "{output:?}");
    assert!(leases.contains("\"leases\":[]"), "{output:?}");
    assert_eq!(ended, "0", "who held it ends as if by a signal: {output:?}");
}

#[test]
fn script_claim_warns_of_sick_device_and_unenforced_limit() {
    let output = script(
        "sick-gpus",
        "\"$0\" claim --gpu 2 --export 2>&1 > /dev/null\n\
         echo | \"$0\" claim --gpu 2 --hold --no-wait 2>&1 > /dev/null | grep -c warning\n\
         \"$0\" claim --gpu 3 --mem 600MiB --framework torch --torch-version 2.10 --export 2>&1 > /dev/null",
    );
    let output_text = out(&output);
    let lines: Vec<&str> = output_text.lines().collect();
    assert_eq!(lines[0], "gpuws: warning: GPU 2: a memory row could not be remapped", "{output:?}");
    let limit = lines.last().expect("a line");
    assert!(limit.contains("warning: the 600 MiB limit is not enforced: "), "{output:?}");
    assert!(limit.contains("(--context)"), "{output:?}");
}

#[test]
fn holder_ignoring_signals_ends_only_by_release() {
    let output = script(
        "twelve-gpus",
        "(trap '' HUP INT TERM; exec \"$0\" claim --gpu 6 --hold --for $$ < /dev/null > held) &\n\
         holder=$!; until_so grep -q VISIBLE held; kill -HUP $holder; kill -INT $holder\n\
         lease=$(leases | grep -o '\"id\":\"[^\"]*' | cut -d'\"' -f4)\n\
         \"$0\" claim --release $lease > /dev/null; echo $?; wait $holder; echo $?",
    );
    assert_eq!(out(&output), "0\n0\n", "{output:?}");
}

#[test]
fn run_lease_cannot_be_released_early() {
    let output = script(
        "twelve-gpus",
        "id() { leases | grep -o '\"id\":\"[^\"]*' | cut -d'\"' -f4; }\n\
         \"$0\" run --gpu 7 -- sh -c 'touch runs; exec sleep 300' & front=$!\n\
         until_so test -e runs; lease=$(id)\n\
         \"$0\" claim --release $lease; echo $?\n\
         \"$0\" leases | grep -c release; kill -0 $front && echo lives\n\
         $(\"$0\" claim --release $lease 2>&1 | sed -n 's/^hint: \\(kill [0-9]*\\) .*/\\1/p')\n\
         wait $front; echo $?; \"$0\" claim --release $lease; echo $?",
    );
    assert_eq!(out(&output), "2\n0\nlives\n143\n2\n", "{output:?}");
    let reported = reported(&output);
    assert!(reported.contains("it belongs to a gpuws run and ends with it"), "{reported}");
    assert!(reported.contains("no lease has this ID"), "{reported}");
}

#[test]
fn orphaned_lease_names_only_its_keeper() {
    let output = script(
        "twelve-gpus",
        "GPUWS_CLAIMS=$PWD/claims; export GPUWS_CLAIMS; mkdir claims\n\
         id() { leases | grep -o '\"id\":\"[^\"]*' | cut -d'\"' -f4; }\n\
         sleep 300 & shell=$!\n\
         \"$0\" claim --gpu 6 --export --for $shell > /dev/null; lease=$(id)\n\
         sh -c 'exec 9>> \"claims/u$(command id -u)/lease-$1\"; touch opened; exec sleep 301' sh $lease & other=$!\n\
         until_so test -e opened; \"$0\" claim --release $lease 2> refused; echo $?\n\
         grep -c \"kept alive by $other sleep,\" refused; grep -c \"$shell\" refused\n\
         kill $other; wait $other; \"$0\" claim --release $lease > /dev/null; echo $?\n\
         kill $shell; wait $shell\n\
         \"$0\" run --gpu 7 --on-death keep -- sh -c 'touch runs; exec sleep 300' & front=$!\n\
         until_so test -e runs; lease=$(id)\n\
         root=$(leases | grep -o '\"pid\":[0-9]*' | head -1 | cut -d: -f2); kill -9 $root\n\
         wait $front; \"$0\" claim --release $lease 2> left; echo $?\n\
         job=$(sed -n 's/.*kept alive by \\([0-9]*\\) sleep.*/\\1/p' left); kill $job; echo $?\n\
         grep -c \"kill $root\" left",
    );
    assert_eq!(out(&output), "2\n1\n0\n0\n2\n0\n0\n", "{output:?}");
}

#[test]
fn outer_lease_cannot_be_released_before_nested() {
    let output = script(
        "twelve-gpus",
        "\"$0\" claim -n 2 --export > words; . ./words\n\
         outer=$(leases | grep -o '\"id\":\"[^\"]*' | cut -d'\"' -f4)\n\
         \"$0\" run -- sh -c 'touch runs; exec sleep 300' & front=$!\n\
         until_so test -e runs\n\
         \"$0\" claim --release $outer; echo $?\n\
         kill $front; wait $front; \"$0\" claim --release $outer > /dev/null; echo $?\n\
         \"$0\" claim --release $outer --hold; echo $?; \"$0\" claim --release A; echo $?",
    );
    assert_eq!(out(&output), "75\n0\n2\n2\n", "{output:?}");
    assert!(reported(&output).contains("is nested in it"), "{output:?}");
}

#[test]
fn claim_preview_ends_with_equivalent_run_command() {
    let output = script(
        "twelve-gpus",
        "\"$0\" claim -n 2 --mem 1536MiB --gpu 0,3,4 --not 4 --accept-used --visible index \
           --timeout 90 --min-free 1GiB --claims \"$PWD\"",
    );
    let output_text = out(&output);
    let expected = "gpuws run -n 2 --mem 1536MiB --gpu 0,3,4 --not 4 --min-free 1GiB \
                    --visible index --claims ";
    assert!(output_text.contains(expected), "{output_text}");
    let end = "--accept-used --timeout 90s -- COMMAND";
    assert!(output_text.trim_end().ends_with(end), "{output_text}");
}

#[test]
fn impossible_claim_preview_exits_like_run() {
    let output = script(
        "twelve-gpus",
        "for words in '-n 13' '--mem 30GiB' '-n 1 --with 1,2'; do\n\
         \"$0\" claim $words; echo $?; \"$0\" run $words -- true; echo $?; done\n\
         \"$0\" claim -n 13 --json | grep possible; \"$0\" claim -n 12 > /dev/null; echo $?",
    );
    assert_eq!(out(&output), "2\n2\n2\n2\n2\n2\n  \"possible\": false,\n0\n", "{output:?}");
    let reported = reported(&output);
    assert!(reported.contains("this machine can provide only 12"), "{reported}");
    assert!(reported.contains("hint: the maximum is -n 12 (GPUs 0–11)"), "{reported}");
}

#[test]
fn hint_of_an_impossible_claim_names_a_possible_one() {
    for (words, hint) in [
        ("labbox claim --mem 900GiB", "request at most 81,446 MiB"),
        ("labbox claim --capability 9.0", "request at most --capability 8.0"),
        ("sick-gpus claim --gpu 4", "name other GPUs"),
        ("sick-gpus claim -n 8", "the maximum is -n 5 (GPUs 0, 1, 3, 6, 7)"),
        ("mig-a100 claim --mig -n 2", "a claim gets one MIG device: -n 1"),
    ] {
        let words = ["--sim"].into_iter().chain(words.split(' '));
        let output = Command::new(GPUWS).args(words).output().unwrap();
        let reported = reported(&output);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(reported.ends_with(&format!("\nhint: {hint}\n")), "{reported}");
    }
}

#[test]
fn init_is_no_process_to_claim_for() {
    let output = Command::new(GPUWS).args(["--sim", "labbox", "claim", "--for", "1"]).output();
    let reported = reported(&output.unwrap());
    assert!(reported.contains("claim for process 1: every process descends from it"), "{reported}");
}

#[test]
fn limiting_factor_is_named() {
    let output = script(
        "twelve-gpus",
        "\"$0\" claim --gpu 0,1 -n 3\n\
         CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=5,7 \"$0\" claim -n 3\n\
         \"$0\" run --quiet -n 2 -- env -u CUDA_VISIBLE_DEVICES \"$0\" claim -n 3",
    );
    let reported = reported(&output);
    let lines: Vec<&str> = reported.lines().filter(|line| line.starts_with("gpuws: ")).collect();
    let [gpu, variable, lease] = lines[..] else { panic!("{output:?}") };
    assert!(gpu.ends_with(": --gpu can provide only 2"), "{gpu}");
    assert!(reported.contains("hint: the maximum is -n 2 (GPUs 0 and 1)\n"), "{reported}");
    assert!(variable.ends_with(": CUDA_VISIBLE_DEVICES can provide only 2"), "{variable}");
    let hint = "hint: the maximum within CUDA_VISIBLE_DEVICES is -n 2 (GPUs 5 and 7)\n";
    assert!(reported.contains(hint), "{reported}");
    assert!(
        lease.contains(": the enclosing lease ") && lease.ends_with(" can provide only 2"),
        "{lease}"
    );
}

#[test]
fn accepted_used_devices_are_listed_last() {
    let output = script("labbox", "\"$0\" claim --accept-used; \"$0\" claim -n 2 --accept-used");
    let output_text = out(&output);
    assert!(output_text.contains("would claim GPU 1 A100-SXM4-80GB\n"), "{output_text}");
    assert!(output_text.contains("in use without a lease by"), "{output_text}");
    assert!(!output_text.contains(": free"), "{output_text}");
    assert!(output_text.contains("would claim GPUs 0 and 1 A100-SXM4-80GB ("), "{output_text}");
}

#[test]
fn simulation_without_live_refuses_to_hold_lease() {
    for (options, out) in [(["--hold", "--no-wait"], ""), (["--export", "--no-wait"], "(exit 2)\n")]
    {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gpuws"));
        command.args(["sim", "labbox", "--", env!("CARGO_BIN_EXE_gpuws"), "claim"]);
        let output = command.args(options).env("NO_COLOR", "1").output().unwrap();
        let output_text = (output.status.code(), String::from_utf8_lossy(&output.stdout));
        assert_eq!((output_text.0, &*output_text.1), (Some(2), out), "{output:?}");
        assert!(reported(&output).contains("gpuws sim labbox --live -- gpuws run"), "{output:?}");
    }
}

#[test]
fn next_command_repeats_claims_dir() {
    let output = script(
        "twelve-gpus",
        "mkdir 'a b'; \"$0\" leases --claims 'a b'\n\
         \"$0\" claim --gpu 7 --export --claims 'a b' > /dev/null\n\
         \"$0\" leases --claims 'a b' | grep -o \"release [0-9a-f]* --claims 'a b'\" | cut -d' ' -f1,3-",
    );
    let output_text = out(&output);
    assert!(output_text.contains("gpuws run -n 1 --claims 'a b' -- COMMAND"), "{output:?}");
    assert!(output_text.ends_with("release --claims 'a b'\n"), "{output:?}");
}

#[test]
fn preview_names_queue_position() {
    let output = script(
        "twelve-gpus",
        "\"$0\" run -n 12 -- sh -c 'until [ -e done ]; do sleep 0.05; done' &\n\
         until_so sh -c '\"$0\" leases --json | grep -q \"command\"' \"$0\"\n\
         for place in 1 2; do \"$0\" run -n 1 -- true 2> /dev/null & sleep 0.1; done\n\
         until_so sh -c '[ $(\"$0\" claim -n 1 | grep -c 3rd) = 1 ]' \"$0\"\n\
         \"$0\" claim -n 1 | grep queue; echo \"$(id -un): true\"; touch done; wait",
    );
    let output_text = out(&output);
    let (place, first) = output_text.trim_end().split_once('\n').unwrap();
    assert_eq!(place, format!("would be 3rd in the queue; first: {first}"), "{output:?}");
}

#[test]
fn lease_shows_command_line_of_its_root() {
    let output = script(
        "twelve-gpus",
        "\"$0\" claim -n 1 --export --for $$ > /dev/null\n\
         \"$0\" leases --json | grep '\"command\"' | cut -c -40",
    );
    assert!(out(&output).contains("\"command\": \"sh -c "), "{output:?}");
}

#[test]
fn table_of_leases_shows_commands_and_nesting() {
    let output = script(
        "twelve-gpus",
        "\"$0\" claim -n 2 --gpu 3,4 --mem 6GiB --export > words; . ./words\n\
         outer=$(leases | grep -o '\"id\":\"[^\"]*' | cut -d'\"' -f4)\n\
         \"$0\" run --quiet --gpu 4 --mem 2GiB -- \"$0\" leases --quiet\n\
         echo \"leases --quiet  within $outer\"",
    );
    let output_text = out(&output);
    let lines: Vec<&str> = output_text.lines().collect();
    let [outer, inner, nested] = lines[..] else { panic!("{output:?}") };
    assert!(outer.contains(" 3, 4  6,144 MiB "), "{output_text}");
    assert!(outer.contains("  sh -c ") && !outer.contains("  within "), "{output_text}");
    assert!(inner.contains(" 4     2,048 MiB ") && inner.ends_with(nested), "{output_text}");
}

#[test]
fn missing_process_is_not_blamed_on_hidepid() {
    let output = script("twelve-gpus", "\"$0\" claim --export --for 4190000");
    let reported = reported(&output);
    assert!(reported.contains("4190000"), "{reported}");
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(!reported.contains("hidepid") || mounts.contains("hidepid"), "{reported}");
}

#[test]
fn leases_name_simulated_machine() {
    let output = Command::new(GPUWS).args(["--sim", "p100-ghost", "leases"]).output().unwrap();
    let lines: Vec<String> = out(&output).lines().map(str::to_owned).collect();
    assert_eq!(lines[..2], ["simulated machine p100-ghost", "no leases and no waiting claims"]);
}

#[test]
fn requirements_of_a_claim_are_honoured() {
    let output = script(
        "twelve-gpus",
        "for words in '--min-free 30GiB' '--capability 99.0' '--with 1 --not 1'; do\n\
         \"$0\" claim $words; echo $?; done\n\
         \"$0\" claim --min-free 20GiB --capability 8.6 --quiet > /dev/null; echo $?",
    );
    assert_eq!(out(&output), "2\n2\n2\n0\n", "{output:?}");
    for why in [
        "GPUs 0–11: only 24,389 MiB in total; 30,720 MiB requested\nhint: request at most 24,389 MiB\n",
        "GPUs 0–11: compute capability 8.6; 99.0 requested\nhint: request at most --capability 8.6\n",
        ": a GPU named by --with is not available; GPU 1: excluded\n",
    ] {
        assert!(reported(&output).contains(why), "{why}: {output:?}");
    }
    let mig = Command::new(GPUWS).args(["--sim", "mig-a100", "claim", "--mig", "-n", "4"]).output();
    let text = reported(&mig.unwrap());
    assert!(text.contains("the choice of MIG devices can provide only "), "{text}");
}

/// A claim of one device does not depend on the connections of devices.
#[test]
fn topology_is_queried_only_for_several_devices() {
    let dir = tempfile::tempdir().unwrap();
    let calls = |words: &[&str]| {
        let counts = dir.path().join(words.join("-"));
        let mut command = Command::new(GPUWS);
        command.args(["sim", "dgx1-v100", "--count-calls", counts.to_str().unwrap(), "--"]);
        let output = command.args([GPUWS, "claim"]).args(words).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        std::fs::read_to_string(counts).unwrap().contains("nvmlDeviceGetNvLinkState")
    };
    assert!(!calls(&["--quiet"]) && calls(&["-n", "2"]) && calls(&["--topology"]));
}

#[test]
fn leases_show_whole_short_commands_and_256_bytes_of_long_ones() {
    let output = script(
        "twelve-gpus",
        "shown() { \"$0\" leases --json | sed -n 's/^ *\"command\": \"\\(.*\\)\",*$/\\1/p'; }\n\
         long=$(printf 'é%.0s' $(seq 200))\n\
         \"$0\" run --quiet -- sh -c 'touch short; exec sleep 300' x & first=$!\n\
         until_so test -e short; shown; kill $first; wait $first\n\
         \"$0\" run --quiet -- sh -c 'touch long; exec sleep 300' $long & second=$!\n\
         until_so test -e long; shown | tr -d '\\n' | wc -c; kill $second; wait $second",
    );
    // The last character would end at byte 257.
    assert_eq!(out(&output), "sh -c touch short; exec sleep 300 x\n255\n", "{output:?}");
}

/// The lease is for the shell that runs the command, not for one around it; a subshell is a copy of
/// the shell that forked it, unless it left its process group.
#[test]
fn root_of_a_lease_is_the_claiming_shell() {
    let output = script(
        "twelve-gpus",
        "root() { leases | grep -o '\"pid\":[0-9]*' | cut -d: -f2; }\n\
         own() { [ \"$(root)\" = $1 ] && echo own || echo \"$(root) is not $1\"; }\n\
         release() { \"$0\" claim --release $(leases | grep -o '\"id\":\"[^\"]*' | cut -d'\"' -f4); } > /dev/null\n\
         (\"$0\" claim --gpu 3 --export > /dev/null; true); own $$; release\n\
         cat > inner << 'END'\n\
         \"$1\" claim --gpu 4 --export > /dev/null; echo $$ > pid; until test -e go; do sleep 0.05; done\n\
         END\n\
         sh inner \"$0\" 2> /dev/null & until_so test -s pid; own $(cat pid); touch go; wait\n\
         cat > apart.py << 'END'\n\
         import os, subprocess, sys, time\n\
         if os.fork(): os.wait(); sys.exit()\n\
         os.setsid(); subprocess.run([sys.argv[1], 'claim', '--gpu', '5', '--export'], stdout=2)\n\
         print(os.getpid(), file=open('apart', 'w'), flush=True)\n\
         while not os.path.exists('end'): time.sleep(0.05)\n\
         END\n\
         python3 apart.py \"$0\" 2> /dev/null & until_so test -s apart; own $(cat apart); touch end; wait",
    );
    assert_eq!(out(&output), "own\nown\nown\n", "{output:?}");
}

#[test]
fn shell_does_not_wait_for_its_own_lease() {
    let output = script(
        "twelve-gpus",
        "\"$0\" claim --gpu 3 --export > words; . ./words\n\
         \"$0\" claim --timeout 60s --export; echo $?; unset CUDA_VISIBLE_DEVICES\n\
         \"$0\" claim --gpu 5 --hold --for $$ < /dev/null > /dev/null & other=$!\n\
         until_so sh -c '[ $(\"$0\" leases --json | sed /queue/,\\$d | grep -c \\\"id\\\") = 2 ]' \"$0\"\n\
         \"$0\" claim --timeout 60s --gpu 3 --export; echo $?\n\
         \"$0\" claim --timeout 60s -n 11 --export; echo $?\n\
         \"$0\" claim --gpu 3,4 --export --no-wait > /dev/null; echo $?\n\
         kill $other; wait $other",
    );
    assert_eq!(out(&output), "(exit 2)\n2\n(exit 2)\n2\n(exit 2)\n2\n0\n", "{output:?}");
    let reported = reported(&output);
    assert!(reported.contains("which would wait for itself: it already has lease "), "{reported}");
    assert!(
        reported.contains("hint: release that lease with: gpuws claim --release "),
        "{reported}"
    );
}

#[test]
fn waiting_line_names_only_leases_of_requested_gpus() {
    let output = script(
        "twelve-gpus",
        "(\"$0\" run -n 3 --gpu 4,5,6 -- sleep 300 & echo $! > four; wait) &\n\
         (\"$0\" run --gpu 3 -- sleep 300 & echo $! > three; wait) &\n\
         until_so sh -c '[ $(\"$0\" leases --json | grep -c \\\"id\\\") = 2 ]' \"$0\"\n\
         \"$0\" run --gpu 3 -- true 2>waiting & echo $! > claim\n\
         until_so grep -q 'leased by ' waiting; cat waiting >&2\n\
         kill $(cat claim three four); wait",
    );
    assert_eq!(out(&output), "", "{output:?}");
    let reported = reported(&output);
    // The line is first that of the queue, if the other two were granted only then.
    let line = reported.lines().find(|line| line.contains("leased by ")).unwrap();
    assert!(line.contains("waiting for 1 GPU") && line.contains(" (1 GPU)"), "{line}");
    assert!(!line.contains("3 GPUs"), "{line}");
}

#[test]
fn preview_warns_of_gpu_busy_without_a_process() {
    let output = script("sick-gpus", "\"$0\" claim --gpu 7; \"$0\" run --gpu 7 -- true");
    for text in [out(&output), reported(&output)] {
        let mut lines = text.lines().filter(|line| line.contains("warning: GPU 7: "));
        let line = lines.next().unwrap_or_else(|| panic!("{output:?}"));
        assert!(line.ends_with(" % busy, but no process uses it"), "{line}");
    }
}

/// Every process descends from it, so an exported lease would never end.
#[test]
fn lease_is_not_taken_for_systemd() {
    let output = script(
        "twelve-gpus",
        "cp /bin/sh systemd\n\
         ./systemd -c '\"$0\" claim --export; echo $?; echo | \"$0\" claim --hold > held; echo $?; grep -c VISIBLE held' \"$0\"\n\
         \"$0\" run --quiet -- \"$0\" claim --export; echo $?",
    );
    assert_eq!(out(&output), "(exit 2)\n2\n0\n1\n(exit 2)\n2\n", "{output:?}");
    let reported = reported(&output);
    assert!(reported.contains(": every process descends from it\n"), "{reported}");
    assert!(reported.contains(": that is gpuws itself, waiting for this program\n"), "{reported}");
}

#[test]
fn at_most_four_keepers_of_a_lease_are_named() {
    let output = script(
        "twelve-gpus",
        "GPUWS_CLAIMS=$PWD/claims; export GPUWS_CLAIMS; mkdir claims\n\
         \"$0\" claim --gpu 6 --export > /dev/null\n\
         lease=$(leases | grep -o '\"id\":\"[^\"]*' | cut -d'\"' -f4)\n\
         for n in 1 2 3 4 5; do\n\
         (exec 9>> claims/u$(command id -u)/lease-$lease; exec sleep 30$n) & all=\"$all $!\"\n\
         until_so grep -q sleep /proc/$!/comm\n\
         \"$0\" claim --release $lease 2>&1 | grep -o 'alive by .*,' | sed 's/[0-9][0-9]* sleep/sleep/g'\n\
         done; kill $all",
    );
    let expected = "alive by sleep,\nalive by sleep and sleep,\nalive by sleep, sleep and sleep,\n\
                    alive by sleep, sleep, sleep and sleep,\n\
                    alive by sleep, sleep, sleep, sleep and 1 more,\n";
    assert_eq!(out(&output), expected, "{output:?}");
}

#[test]
fn lists_leases_of_invisible_devices_and_claims_without_leases() {
    let output = script(
        "labbox",
        "export GPUWS_CLAIMS=$PWD\n\
         \"$0\" run --gpu 0 -- true 2> /dev/null & waiter=$!\n\
         until_so sh -c '\"$0\" leases --json | grep -q ahead' \"$0\"; \"$0\" leases --quiet; echo ====\n\
         \"$0\" claim --gpu 1 --export --for $$ > /dev/null; \"$0\" leases --quiet; echo ====\n\
         \"$0\" leases | grep -c 'claim --release'; \"$0\" leases --quiet | grep -c 'claim --release'\n\
         kill $waiter; wait $waiter; echo ====\n\
         \"$0\" sim twelve-gpus --live -- \"$0\" leases",
    );
    let output_text = out(&output);
    let parts: Vec<&str> = output_text.split("====\n").collect();
    let [waits, both, releases, elsewhere] = parts[..] else { panic!("{output:?}") };
    assert!(waits.starts_with("1 claim waiting\n  1st  "), "{waits}");
    assert!(waits.contains("       GPU 0: in use without a lease by "), "{waits}");
    assert!(!both.contains("user ") && both.contains("\n\n1 claim waiting\n  1st  "), "{both}");
    assert_eq!(releases, "1\n0\n", "{output:?}");
    assert!(elsewhere.contains("  1 not visible here  ") && !elsewhere.contains(" and "));
    assert!(elsewhere.contains("\n1 GPU not visible here: held by your claim."), "{elsewhere}");
}

#[test]
fn containers_get_the_names_of_their_devices() {
    let output = script(
        "twelve-gpus",
        "\"$0\" claim --gpu 6,7 -n 2 --export --format cdi > names; echo $?\n\
         sed 's/=GPU-[0-9a-f-]*$/=UUID/' names; cut -d= -f2 names | sort > claimed\n\
         leases | grep -o 'GPU-[0-9a-f-]*' | sort -u | cmp - claimed && echo same\n\
         \"$0\" claim --gpu 7 --export --no-wait --format cdi 2> /dev/null; echo $?\n\
         \"$0\" claim --format cdi 2> why; echo $?; grep -c 'requires --hold or --export' why\n\
         grep -c 'hint: podman run .*claim --export --format cdi' why\n\
         \"$0\" claim --hold --json --format cdi 2> why; echo $?",
    );
    let names = "nvidia.com/gpu=UUID\nnvidia.com/gpu=UUID\n";
    // A failed claim prints no word that podman would interpret as a device.
    assert_eq!(out(&output), format!("0\n{names}same\n2\n2\n1\n1\n2\n"), "{output:?}");
}

#[test]
fn mig_device_is_named_for_containers() {
    let output = script(
        "mig-a100",
        "\"$0\" claim --mig --accept-used --export --format cdi 2> why; echo $?; cat why",
    );
    assert!(out(&output).starts_with("nvidia.com/gpu=MIG-"), "{output:?}");
}
