//! Possible findings: `status` shows no names, `doctor` groups them in a block, and a busy machine
//! has none. Also what `reap` prints if it ends no process.

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn gpuws(words: &[&str], environment: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpuws"));
    command.args(words).env_remove("COLUMNS").env_remove("CLICOLOR_FORCE").stdin(Stdio::null());
    command.envs(environment.iter().copied()).output().expect("gpuws runs")
}

fn printed(words: &str) -> String {
    text(&gpuws(&words.split(' ').collect::<Vec<_>>(), &[]))
}

fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("gpuws prints UTF-8")
}

#[test]
fn visible_devices_are_noted() {
    let seen = |value: &str| {
        let set = [("CUDA_VISIBLE_DEVICES", value)];
        let noted = text(&gpuws(&["--sim", "labbox"], &set));
        let json = text(&gpuws(&["--sim", "labbox", "status", "--json"], &set));
        let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        let note = noted.lines().find_map(|line| line.strip_prefix("visible here: "));
        (note.map(str::to_owned), json["visible_gpus"].clone())
    };
    let note = |text: &str| Some(text.to_owned());
    let none = serde_json::json!([]);
    assert_eq!(seen("2,0"), (note("GPUs 2, 0 (CUDA_VISIBLE_DEVICES=2,0)"), [2, 0].into()));
    assert_eq!(seen("1"), (note("GPU 1 (CUDA_VISIBLE_DEVICES=1)"), vec![1].into()));
    assert_eq!(seen(""), (note("no GPU (CUDA_VISIBLE_DEVICES=)"), none));
    assert!(!printed("--sim labbox").contains("visible here"));
}

#[test]
fn process_that_waits_for_the_host_is_possible_after_some_samples() {
    let shown = printed("--sim slow-loader doctor --samples 3 --every 5");
    assert!(shown.contains("WAITS FOR THE HOST  GPUs 0, 1 "), "{shown}");
    assert!(
        shown.contains("confidence: possible") && shown.contains("704 % CPU over 10 s"),
        "{shown}"
    );
    assert!(!printed("--sim slow-loader doctor").contains("WAITS"));
    let holder = printed("--sim gtx1080ti-x8-hoarder doctor");
    assert!(holder.contains("torchrun --nproc-per-node 8"), "{holder}");
}

#[test]
fn status_has_the_time_of_the_snapshot() {
    let words = ["--sim", "labbox"];
    let shown = text(&gpuws(&words, &[("TZ", "UTC")]));
    assert_eq!(shown.lines().nth(1), Some("2025-03-03 10:00:00"), "{shown}");
    let quiet = text(&gpuws(&["--quiet", "--sim", "labbox"], &[("TZ", "UTC")]));
    assert!(!quiet.contains("10:00:00"), "{quiet}");
}

#[test]
fn display_server_is_marked_and_a_column_has_the_type() {
    let shown = printed("--sim display-single");
    let row = shown.lines().find(|line| line.contains("Xorg")).expect("its row");
    assert!(row.ends_with("  display"), "{shown}");
    let table = printed("--sim display-single status --columns type,display,bus-id");
    assert!(table.contains("  on  ") && table.lines().any(|line| line.ends_with("  G")), "{table}");
}

/// Writes a machine of 8 GPUs with 4 processes each, which init has adopted, with the leaders of
/// their groups gone: an hour old, and each `utilization` percent busy.
fn eight_by_four(dir: &Path, utilization: u32, more: &str) -> String {
    let mut machine = "description = \"made: 8 GPUs, 4 processes on each\"\nhostname = \"m8\"\n\
        clock = 2025-03-03T10:00:00Z\n[driver]\nversion = \"535.261.03\"\ncuda = \"12.2\"\n"
        .to_owned();
    for index in 0..8 {
        write!(
            machine,
            "[[gpu]]\nindex = {index}\nname = \"NVIDIA A100-SXM4-80GB\"\n\
             memory_total_mib = 81920\ndriver_reserve_mib = 4\npersistence = true\n"
        )
        .unwrap();
    }
    for (index, slot) in (0..8).flat_map(|index| (0..4).map(move |slot| (index, slot))) {
        let pid = 3000 + index * 10 + slot;
        write!(
            machine,
            "[[process]]\npid = {pid}\nname = \"python\"\nuser = \"user{slot}\"\nparent = 1\n\
             group = 2900\nsession = 2900\nstarted = 2025-03-03T09:00:00Z\n{more}\n\
             memory = [{{ gpu = {index}, mib = 8000, utilization_percent = {utilization} }}]\n"
        )
        .unwrap();
    }
    std::fs::write(dir.join("machine.toml"), machine).unwrap();
    dir.to_str().expect("a UTF-8 path").to_owned()
}

#[test]
fn thirty_two_computing_processes_are_no_finding() {
    let dir = tempfile::tempdir().unwrap();
    for more in ["", "state = \"uninterruptible\""] {
        let machine = eight_by_four(dir.path(), 24, more);
        let status = text(&gpuws(&["--sim", &machine], &[]));
        assert!(!status.contains("finding") && status.contains("user3"), "{status}");
        let doctor = gpuws(&["--sim", &machine, "doctor"], &[]);
        assert_eq!((doctor.status.code(), text(&doctor).lines().count()), (Some(0), 3));
        assert!(text(&doctor).ends_with("No problems found.\n"), "{doctor:?}");
    }
}

#[test]
fn equal_possible_findings_share_a_block_with_a_bound() {
    let dir = tempfile::tempdir().unwrap();
    let machine = eight_by_four(dir.path(), 0, "");
    let doctor = text(&gpuws(&["--sim", &machine, "doctor"], &[]));
    let heads: Vec<&str> =
        doctor.lines().filter(|line| line.contains("confidence: possible")).collect();
    assert_eq!(heads.len(), 1, "{doctor}");
    assert!(heads[0].starts_with("ORPHAN  32 processes on GPUs 0–7 A100"), "{doctor}");
    assert_eq!(doctor.matches("held by").count(), 8, "{doctor}");
    assert_eq!(doctor.matches("no compute observed").count(), 1, "once for all: {doctor}");
    assert!(doctor.contains("and 24 more: gpuws --sim"), "{doctor}");
    assert!(!doctor.contains("reap --pid"), "no bulk command: {doctor}");
    assert!(doctor.contains("doctor --samples 11 --every 60"), "{doctor}");
    assert!(doctor.contains("32 findings, only possible."), "{doctor}");
    let status = text(&gpuws(&["--sim", &machine], &[]));
    assert!(status.contains("\n32 possible findings: gpuws --sim"), "{status}");
    assert!(!status.contains("orphan"), "{status}");
}

#[test]
fn possible_finding_is_counted_unnamed_and_ghost_is_named() {
    let status = printed("--sim labbox");
    let row = status.lines().find(|line| line.contains("18250")).expect("bob's row");
    assert!(row.trim_end().ends_with("2 d"), "{row}");
    assert!(status.contains("4 GPUs, 1 free, 1+ findings\n"), "{status}");
    let ghost = status.find("\nGPU 3: ghost 15.4 GiB.   gpuws --sim labbox doctor --gpu 3\n");
    let possible = status.find("\n1 possible finding: gpuws --sim labbox doctor\n");
    assert!(ghost.is_some() && ghost < possible, "{status}");
    let coloured = text(&gpuws(&["--sim", "labbox", "--color", "always"], &[]));
    let dimmed = "\x1b[2m1 possible finding: gpuws --sim labbox doctor\x1b[0m";
    assert!(coloured.contains(dimmed), "{coloured}");
    let other = printed("--sim labbox status -i 0");
    assert!(!other.contains("possible"), "it is on another GPU: {other}");
    let json: serde_json::Value =
        serde_json::from_str(&printed("--sim labbox status --json")).expect("JSON");
    assert_eq!((&json["finding_count"], &json["possible_finding_count"]), (&2.into(), &1.into()));
    let doctor = printed("--sim labbox doctor");
    let ghost = doctor.find("GHOST  GPU 3").expect("a ghost");
    let idle = doctor.find("IDLE HOLDER  GPU 2").expect("an idle holder");
    assert!(ghost < idle && doctor.contains("2 findings, 1 only possible."), "{doctor}");
    let json: serde_json::Value =
        serde_json::from_str(&printed("--sim labbox doctor --json")).expect("JSON");
    assert_eq!(json["findings"][1]["kind"], "hoarder", "the name in JSON stays");
}

#[test]
fn reap_says_why_it_ends_no_process_on_requested_gpus() {
    let idle = "18250 (bob) is idle: gpuws --sim labbox reap --pid 18250\n";
    let of_gpu = printed("--sim labbox reap --gpu 2");
    assert!(of_gpu.contains(&format!("no unaccounted memory on GPU 2; {idle}")), "{of_gpu}");
    assert!(!of_gpu.contains("19777"), "it is on another GPU: {of_gpu}");
    let of_user = printed("--sim labbox reap --user bob");
    let idle = idle.replace("(bob)", "(bob) on GPU 2");
    assert!(of_user.contains(&format!("no unaccounted memory of bob; {idle}")), "{of_user}");
    assert!(!of_user.contains("19777"), "another user owns it: {of_user}");
    let busy = printed("--sim labbox reap --gpu 0");
    assert!(busy.contains("\nno unaccounted memory on GPU 0\nnothing was done."), "{busy}");
    let both = printed("--sim labbox reap --gpu 2,3");
    assert!(both.contains("would send SIGTERM to 19777"), "{both}");
    assert!(both.contains("no unaccounted memory on GPU 2; 18250 (bob) is idle"), "{both}");
    let unsure = printed("--sim mig-a100 reap --gpu 0");
    let text = "ghost 5.0 GiB on GPU 0: reap ends no process for it without --pid: gpuws --sim \
                mig-a100 doctor --gpu 0\n";
    assert!(unsure.contains(text), "{unsure}");
}

#[test]
fn reap_refuses_process_without_a_gpu() {
    let output = printed("--sim shared-lab reap --pid 5101");
    assert!(output.contains("refused 5101 bash: it holds no GPU\n"), "{output}");
    let output = printed("--sim labbox reap --gpu 0 --pid 18250");
    assert!(output.contains("it holds none of the requested GPUs\n"), "{output}");
}

#[test]
fn pipe_output_is_uncut_and_columns_set_the_width() {
    let command = "/opt/vllm/bin/python3 -m vllm.entrypoints.openai.api_server";
    let words = ["--sim", "shared-lab"];
    let pipe = text(&gpuws(&words, &[]));
    assert!(pipe.contains(command) && !pipe.contains('…'), "{pipe}");
    let row = pipe.lines().find(|line| line.contains(command)).expect("a row");
    assert!(row.ends_with("api_server  72.0 GiB   0 %  21 d"), "{row}");
    let wide = text(&gpuws(&words, &[("COLUMNS", "250")]));
    assert!(wide.contains(command) && !wide.contains('…'), "{wide}");
    let narrow = text(&gpuws(&words, &[("COLUMNS", "60")]));
    let rows = || narrow.lines().filter(|line| !line.contains("gpuws"));
    assert!(rows().all(|line| line.chars().count() <= 60), "{narrow}");
    assert!(narrow.contains('…'), "{narrow}");
    let prose = |columns| {
        let doctor = text(&gpuws(&["--sim", "labbox", "doctor"], &[("COLUMNS", columns)]));
        doctor.lines().map(|line| line.chars().count()).max().unwrap_or(0)
    };
    assert!(prose("60") < prose("120"), "text is wrapped to the width");
    for unusable in ["", "0", "-3", "wide"] {
        assert_eq!(text(&gpuws(&words, &[("COLUMNS", unusable)])), pipe, "{unusable:?}");
    }
}

#[test]
fn free_mig_device_is_counted_and_marked() {
    let status = printed("--sim mig-a100");
    assert!(status.contains("1 GPU, 0 free, 1 MIG device free  ·  1+ findings\n"), "{status}");
    let row = status.lines().find(|line| line.contains("MIG 2")).expect("a row");
    assert!(row.ends_with(" free"), "{row}");
    let used = status.lines().find(|line| line.contains("MIG 1")).expect("a row");
    assert!(!used.ends_with("free"), "{used}");
}

#[test]
fn less_than_a_gibibyte_is_shown_in_mebibytes() {
    let status = printed("--sim shared-lab");
    let row = status.lines().find(|line| line.contains("nvidia-cuda-mps-server")).expect("a row");
    assert!(row.contains(" 30 MiB"), "{row}");
    let free = printed("--sim labbox status -i 1");
    assert!(free.contains(" 4 MiB/ 80.0 GiB free"), "{free}");
    let columns = printed("--sim shared-lab status --columns gpu-memory,memory");
    assert!(columns.contains(" 30 MiB") && !columns.contains(" 0.0"), "{columns}");
}

#[test]
fn selection_without_a_driver_reports_the_driver() {
    let remedy = "install the driver";
    for words in ["status --gpu 0", "status -i 0,3", "-i 0"] {
        let output = printed(&format!("--sim no-driver {words}"));
        let what = "cannot query any GPU: no NVIDIA driver is installed";
        assert!(output.contains(what) && output.contains(remedy), "{words}: {output}");
    }
    for words in ["doctor --gpu 0", "reap --gpu 0", "reap --gpu 0 --pid 1", "reset 0"] {
        let words: Vec<&str> = words.split(' ').collect();
        let output = gpuws(&[&["--sim", "no-driver"], &words[..]].concat(), &[]);
        let all = text(&output) + &String::from_utf8_lossy(&output.stderr);
        assert!(all.contains("no NVIDIA driver") && all.contains(remedy), "{words:?}: {all}");
        assert_eq!(output.status.code(), Some(3), "{words:?}: {all}");
    }
}

#[test]
fn quiet_drops_headings_and_advice_and_moves_label_to_stderr() {
    for words in [
        "status",
        "status -i 2",
        "doctor",
        "reap",
        "reap --gpu 2",
        "reset 1",
        "holders",
        "topo",
        "status --columns name,user",
    ] {
        let words: Vec<&str> =
            [&["--sim", "labbox", "--quiet"], &words.split(' ').collect::<Vec<_>>()[..]].concat();
        let output = gpuws(&words, &[]);
        let shown = text(&output);
        let label = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(label, "gpuws: simulated machine labbox\n", "{words:?}");
        assert!(!shown.contains("simulated machine"), "{words:?}: {shown}");
        for heading in
            ["driver 535", "4 GPUs", "FILE ", "NAME", "nothing was done", "possible finding:"]
        {
            assert!(!shown.contains(heading), "{words:?} {heading}: {shown}");
        }
        assert!(!shown.trim().is_empty(), "{words:?}");
    }
    let status = printed("--sim labbox --quiet");
    assert!(status.starts_with(" 0  A100-SXM4-80GB"), "{status}");
    assert!(!status.contains("gpuws "), "{status}");
}

/// In a session, the age of a process is unknown; a process of a run has a new lease as well.
#[test]
fn new_process_is_no_finding() {
    let shown = |start: &str| {
        let output = crate::live::script(
            "twelve-gpus",
            &format!(
                "(trap '' TERM; {start}) & job=$!\n\
                 listed() {{ \"$0\" query --query-compute-apps=pid --format=csv,noheader \
                 | grep -q .; }}\n\
                 until_so listed; \"$0\" status; \"$0\" doctor; echo $?; kill -9 $job"
            ),
        );
        let shown = crate::live::out(&output);
        assert!(shown.contains("nvml-sim-process"), "it is listed: {output:?}");
        assert!(!shown.contains("finding") && !shown.contains("idle holder"), "{shown}");
        assert!(shown.ends_with("\n0\n"), "{shown}");
    };
    let program = "\"$GPUWS_SIM_SESSION/nvml-sim-process\" --use visible:5000 --seconds 20";
    shown(&format!("exec \"$0\" run -n 2 -- {program}"));
    shown(&format!("CUDA_VISIBLE_DEVICES=1 exec {program}"));
}
