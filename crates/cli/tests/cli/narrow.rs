//! `gpuws status` on narrow terminals: lines fit the terminal except for commands to copy, and
//! findings are complete.

use std::process::{Command, Stdio};

/// The widths of a standard terminal, of half a screen, and of a phone.
const WIDTHS: [usize; 3] = [80, 60, 40];

/// Returns the output of `gpuws status` on a terminal of this width, which `script` of util-linux
/// creates.
fn on_terminal(machine: &str, columns: usize) -> String {
    let gpuws = env!("CARGO_BIN_EXE_gpuws");
    let command = format!("stty cols {columns} rows 50; exec '{gpuws}' --sim {machine} status");
    let output = Command::new("script")
        .args(["--quiet", "--return", "--command", &command, "/dev/null"])
        .env("NO_COLOR", "1")
        .env_remove("COLUMNS")
        .stdin(Stdio::null())
        .output()
        .expect("script of util-linux runs");
    assert!(output.status.success(), "{machine}, {columns} columns: {output:?}");
    String::from_utf8(output.stdout).expect("output is UTF-8").replace('\r', "")
}

fn in_a_pipe(machine: &str) -> String {
    let output =
        Command::new(env!("CARGO_BIN_EXE_gpuws")).args(["--sim", machine, "status"]).output();
    String::from_utf8(output.expect("gpuws runs").stdout).expect("output is UTF-8")
}

/// Returns the words of a text without separators.
fn words(text: &str) -> String {
    text.split_whitespace().filter(|word| *word != "·").collect::<Vec<_>>().join(" ")
}

#[test]
fn output_fits_narrow_terminal_without_cutting_findings() {
    let mut findings = 0;
    for machine in gpu_sim::machines() {
        let whole = in_a_pipe(machine.name);
        let head = whole.lines().nth(1).expect("a headline");
        let reported =
            whole.lines().filter(|line| line.starts_with("GPU") && line.contains("doctor"));
        let reported: Vec<&str> = reported.chain([head]).collect();
        for columns in WIDTHS {
            let shown = on_terminal(machine.name, columns);
            for line in shown.lines() {
                let copied = line.contains("gpuws ") || line.starts_with("remedy: ");
                let width = line.chars().count();
                let name = machine.name;
                assert!(width <= columns || copied, "{name}, {columns} columns: {line}");
            }
            let text = words(&shown);
            for line in &reported {
                assert!(text.contains(&words(line)), "{}, {columns}: {line}", machine.name);
            }
        }
        findings += reported.len() - 1;
    }
    assert!(findings > 10, "{findings}");
}
