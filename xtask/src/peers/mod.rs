//! Checks that common tools show the same figures on a simulated machine as gpuws.
//!
//! Each tool runs unmodified on the simulated NVML, on every shipped machine, and its figures are
//! compared with `gpuws --sim MACHINE status --json`. If the driver of the machine does not
//! respond, a tool must fail. Three things are not compared, as the output states: the processes of
//! nvidia-smi, which come from a private interface of NVML; processes of an invisible PID
//! namespace, whose PIDs gpuws does not resolve; and the host memory that nvitop shows for a device
//! that has no memory of its own.

mod figures;
mod install;
mod session;
mod sources;
mod tools;

use crate::cargo;
use figures::Figures;
use install::Peers;
pub(crate) use install::install_safe_gpu;
use serde_json::Value;
use session::Session;
use std::collections::BTreeMap;
use std::io::{self, Error, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tools::{Outcome, TOOLS, Tool};

/// Installs the tools and, unless `install_only`, compares them with gpuws on every shipped
/// machine. Returns whether all tools agree.
///
/// # Errors
/// If gpuws cannot be built or run, or `out` cannot be written.
pub fn peers(root: &Path, install_only: bool, out: &mut dyn Write) -> io::Result<bool> {
    let peers = Peers::in_dir(cargo::target_dir(root).join("peers"));
    peers.install(out)?;
    if install_only {
        return Ok(true);
    }
    writeln!(out, "peers: building gpuws and its simulated NVML …")?;
    let gpuws = build(root)?;
    let mut all = Vec::new();
    for machine in tools::machines(root)? {
        write!(out, "peers: {machine} …")?;
        out.flush()?;
        let row = compare(&gpuws, &peers, &machine)?;
        writeln!(out, " {}", row.summary())?;
        all.push(row);
    }
    show(&all, out)?;
    Ok(all.iter().all(Row::agrees))
}

/// Builds gpuws and its simulated NVML; returns the program.
fn build(root: &Path) -> io::Result<PathBuf> {
    let built =
        cargo::build(root, &["build", "--package=gpuws", "--package=gpu-nvml-sim", cargo::FULL])?;
    let gpuws = built.into_iter().find(|built| built.target == "gpuws" && built.kind == "bin");
    gpuws.map(|gpuws| gpuws.path).ok_or_else(|| Error::other("cargo built no gpuws"))
}

/// The result of comparing a tool with gpuws on a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict {
    /// The number of figures, all equal.
    Same(usize),
    /// The differences.
    Differs(Vec<String>),
    /// The driver of the machine does not respond, and the tool failed as expected.
    FailsAsExpected,
    NotInstalled,
}

/// A machine, and the verdict on each tool.
struct Row {
    machine: String,
    /// Whether NVML's PIDs are meaningless in gpuws's PID namespace.
    foreign: bool,
    verdicts: Vec<Verdict>,
}

impl Row {
    fn agrees(&self) -> bool {
        !self.verdicts.iter().any(|verdict| matches!(verdict, Verdict::Differs(_)))
    }

    fn summary(&self) -> String {
        let differ = TOOLS.iter().zip(&self.verdicts);
        let differ = differ.filter(|(_, verdict)| matches!(verdict, Verdict::Differs(_)));
        let names: Vec<&str> = differ.map(|(tool, _)| tool.name).collect();
        if names.is_empty() {
            "agrees".to_owned()
        } else {
            format!("differs: {}", names.join(", "))
        }
    }
}

fn compare(gpuws: &Path, peers: &Peers, machine: &str) -> io::Result<Row> {
    let ask = |command: &str| -> io::Result<Value> {
        let output = Command::new(gpuws)
            .args(["--sim", machine, command, "--json"])
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .output()?;
        // If the driver does not respond, doctor prints no object.
        Ok(serde_json::from_slice(&output.stdout).unwrap_or_default())
    };
    let (status, doctor) = (ask("status")?, ask("doctor")?);
    let mut kinds = figures::array(&doctor["findings"]).iter().map(|finding| &finding["kind"]);
    let foreign = kinds.any(|kind| kind == "foreign-namespace");
    let session = Session::start(gpuws, machine, &peers.session())?;
    let subject = Subject { status, real: session.placeholders(), foreign };
    let verdict = |tool: &Tool| judge(tool, &subject, (tool.run)(peers, &session));
    let verdicts = TOOLS.iter().map(verdict).collect();
    Ok(Row { machine: machine.to_owned(), foreign, verdicts })
}

/// The output of gpuws for a machine.
struct Subject {
    /// `gpuws status --json`.
    status: Value,
    /// The PID of the real process for each simulated one.
    real: BTreeMap<u64, u64>,
    /// Whether NVML's PIDs are meaningless in gpuws's PID namespace.
    foreign: bool,
}

impl Subject {
    /// Returns the figures that can be compared with those of a tool.
    fn comparable(&self, figures: Figures, tool: &Tool) -> Figures {
        let figures = figures.of_fields(tool.fields);
        if self.foreign { figures.of_processes(&|_| false) } else { figures }
    }
}

/// Compares the figures of a tool with those of gpuws.
fn judge(tool: &Tool, subject: &Subject, outcome: Outcome) -> Verdict {
    let Subject { status, real, .. } = subject;
    let silent = !status["driver_error"].is_null();
    match outcome {
        Outcome::NotInstalled => Verdict::NotInstalled,
        Outcome::Failed(_) if silent => Verdict::FailsAsExpected,
        Outcome::Failed(message) => Verdict::Differs(vec![format!("fails: {message}")]),
        Outcome::Shown(_) if silent => {
            Verdict::Differs(vec!["it shows devices although no driver responds".to_owned()])
        }
        Outcome::Shown(shown) => {
            let mut expected = subject.comparable(Figures::of_status(status, real), tool);
            if tool.drops_gone {
                expected = expected.of_processes(&|pid| real.values().any(|real| *real == pid));
            }
            let differences = expected.differences(&subject.comparable(shown, tool));
            if differences.is_empty() {
                Verdict::Same(expected.len())
            } else {
                Verdict::Differs(differences.iter().map(ToString::to_string).collect())
            }
        }
    }
}

/// Prints the table, and all differences below it.
fn show(rows: &[Row], out: &mut dyn Write) -> io::Result<()> {
    let first = rows.iter().map(|row| row.machine.len()).max().unwrap_or(0);
    write!(out, "\n{:first$}", "")?;
    for tool in TOOLS {
        write!(out, "  {:16}", tool.name)?;
    }
    for row in rows {
        write!(out, "\n{:first$}", row.machine)?;
        for verdict in &row.verdicts {
            let word = match verdict {
                Verdict::Same(count) => format!("same ({count})"),
                Verdict::Differs(all) => format!("DIFFERS ({})", all.len()),
                Verdict::FailsAsExpected => "error, rightly".to_owned(),
                Verdict::NotInstalled => "not installed".to_owned(),
            };
            write!(out, "  {word:16}")?;
        }
    }
    writeln!(out, "\n\nIn brackets: the number of compared or differing values.")?;
    writeln!(
        out,
        "The processes of nvidia-smi are not compared because it reads them from an NVML \
         interface that is not public."
    )?;
    writeln!(
        out,
        "For a device without its own memory nvitop shows the host's; this counts as not \
         available."
    )?;
    for row in rows.iter().filter(|row| row.foreign) {
        writeln!(
            out,
            "{}: processes are not compared: their PIDs belong to a PID namespace that is not \
             visible, so gpuws does not resolve them.",
            row.machine
        )?;
    }
    for row in rows {
        for (tool, verdict) in TOOLS.iter().zip(&row.verdicts) {
            if let Verdict::Differs(all) = verdict {
                for what in all {
                    writeln!(out, "{}: {}: {}", row.machine, tool.name, plain(what))?;
                }
            }
        }
    }
    Ok(())
}

/// Removes control characters from another program's output, and truncates it.
fn plain(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(300).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const TOOL: Tool = Tool {
        name: "tool",
        fields: &["memory_used_mib", "memory_mib"],
        drops_gone: true,
        run: |_, _| Outcome::NotInstalled,
    };

    fn judged(status: Value, outcome: Outcome) -> Verdict {
        judge(&TOOL, &Subject { status, real: BTreeMap::from([(7, 70)]), foreign: false }, outcome)
    }

    fn shown(value: Value) -> Outcome {
        Outcome::Shown(Figures::from_json(&value.to_string()).unwrap())
    }

    #[test]
    fn tool_must_match_and_fail_without_driver() {
        let status = json!({ "driver_error": null, "gpus": [{
            "index": 0, "memory_used_bytes": 9 << 20,
            "processes": [
                { "pid": 7, "listed": true, "memory_bytes": 8 << 20 },
                { "pid": 9, "listed": true, "memory_bytes": 1 << 20 },
            ],
        }]});
        let same = json!({ "0 memory_used_mib": 9, "0 pid 70 memory_mib": 8, "0 fan": 5 });
        assert_eq!(judged(status.clone(), shown(same)), Verdict::Same(2));
        let other = json!({ "0 memory_used_mib": 9, "0 pid 70 memory_mib": 7 });
        assert!(
            matches!(judged(status.clone(), shown(other)), Verdict::Differs(all) if all.len() == 1)
        );
        let foreign = json!({ "0 memory_used_mib": 9, "0 pid 5 memory_mib": 7 });
        let subject = Subject { status: status.clone(), real: BTreeMap::new(), foreign: true };
        assert_eq!(judge(&TOOL, &subject, shown(foreign)), Verdict::Same(1));
        let fails = Outcome::Failed("no".into());
        assert!(matches!(judged(status, fails.clone()), Verdict::Differs(_)));

        let silent = json!({ "driver_error": { "what": "none" }, "gpus": [] });
        assert_eq!(judged(silent.clone(), fails), Verdict::FailsAsExpected);
        assert!(matches!(judged(silent.clone(), shown(json!({}))), Verdict::Differs(_)));
        assert_eq!(judged(silent, Outcome::NotInstalled), Verdict::NotInstalled);
    }

    #[test]
    fn foreign_output_is_printed_without_control_characters() {
        assert_eq!(plain("a\u{1b}[31mb\n"), "a[31mb");
        assert_eq!(plain(&"x".repeat(1000)).len(), 300);
    }
}
