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
    assert_eq!(ended, "0", "who held it ends as if told by a signal: {output:?}");
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
                    --timeout 90s --visible index --claims ";
    assert!(output_text.contains(expected), "{output_text}");
    assert!(output_text.trim_end().ends_with("--accept-used -- COMMAND"), "{output_text}");
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
    assert!(reported.contains("the maximum is -n 12"), "{reported}");
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
    assert!(variable.ends_with(": CUDA_VISIBLE_DEVICES can provide only 2"), "{variable}");
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
fn preview_names_place_in_queue() {
    let output = script(
        "twelve-gpus",
        "\"$0\" run -n 12 -- sh -c 'until [ -e done ]; do sleep 0.05; done' &\n\
         until_so sh -c '\"$0\" leases --json | grep -q \"command\"' \"$0\"\n\
         for place in 1 2; do \"$0\" run -n 1 -- true 2> /dev/null & sleep 0.1; done\n\
         until_so sh -c '[ $(\"$0\" claim -n 1 | grep -c 3rd) = 1 ]' \"$0\"\n\
         \"$0\" claim -n 1 | grep queue; touch done; wait",
    );
    assert!(out(&output).starts_with("would be 3rd in the queue; first: "), "{output:?}");
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
fn leases_name_simulated_machine() {
    let output = Command::new(GPUWS).args(["--sim", "p100-ghost", "leases"]).output().unwrap();
    let lines: Vec<String> = out(&output).lines().map(str::to_owned).collect();
    assert_eq!(lines[..2], ["simulated machine p100-ghost", "no leases and no waiting claims"]);
}
