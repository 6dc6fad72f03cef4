//! Arguments of the commands that claim devices.

use super::KeepArgs;
use crate::wording::shell_word;
use clap::{Args, ValueEnum};
use gpu_core::Selector;
use gpu_core::{Bytes, LeaseId};
use gpu_steward::OnDeath;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

// Which devices are wanted.
#[derive(Debug, Args)]
pub(crate) struct Wanted {
    /// Number of GPUs.
    #[arg(short = 'n', long = "gpus", value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) count: u32,
    /// Claim only this much memory of each GPU and share the rest (6GiB, 500MiB).
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) mem: Option<Bytes>,
    /// Choose only among these GPUs, by index, UUID or PCI bus ID; repeatable.
    #[arg(long, value_name = "GPU,…", value_delimiter = ',')]
    pub(crate) gpu: Vec<Selector>,
    /// Claim a MIG device, of those in --gpu if given. By default a MIG device is claimed only if
    /// --gpu or CUDA_VISIBLE_DEVICES names it (MIG-…).
    #[arg(long)]
    pub(crate) mig: bool,
    /// Exclude these GPUs.
    #[arg(long = "not", value_name = "GPU,…", value_delimiter = ',')]
    pub(crate) except: Vec<Selector>,
    /// Require these GPUs; others are added up to -n.
    #[arg(long = "with", value_name = "GPU,…", value_delimiter = ',')]
    pub(crate) required: Vec<Selector>,
    /// Minimum free memory on each GPU.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) min_free: Option<Bytes>,
    /// Minimum compute capability.
    #[arg(long, value_name = "MAJOR.MINOR", value_parser = capability)]
    pub(crate) capability: Option<(u32, u32)>,
    /// Fail if the GPU topology is unknown; by default it is used when available.
    #[arg(long)]
    pub(crate) topology: bool,
    /// Accept GPUs in use without a lease or with unexplained memory.
    #[arg(long)]
    pub(crate) accept_used: bool,
    /// Wait until the GPUs are available (default).
    #[arg(long, conflicts_with_all = ["no_wait", "timeout"])]
    wait: bool,
    /// Do not wait: exit with 75 if the GPUs are not available now.
    #[arg(long, conflicts_with = "timeout")]
    pub(crate) no_wait: bool,
    /// Wait at most this long, then exit with 75 (90s, 10m, 2h).
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) timeout: Option<Duration>,
    /// Format of CUDA_VISIBLE_DEVICES.
    #[arg(long, value_name = "FORM", default_value = "uuid")]
    pub(crate) visible: Visible,
    /// Lease directory to use instead of the system-wide one.
    #[arg(long, value_name = "DIR")]
    pub(crate) claims: Option<PathBuf>,
}

impl Wanted {
    /// Returns the options as they are written, each with a blank before it.
    pub(crate) fn again(&self) -> String {
        let mut words = String::new();
        let mut option = |name: &str, value: Option<String>| {
            words.push_str(&format!(" {name}"));
            words.extend(value.map(|value| format!(" {}", shell_word(&value))));
        };
        let list = |named: &[Selector]| {
            let named: Vec<String> = named.iter().map(ToString::to_string).collect();
            (!named.is_empty()).then(|| named.join(","))
        };
        if self.count != 1 {
            option("-n", Some(self.count.to_string()));
        }
        for (name, value) in [
            ("--mem", self.mem.map(written)),
            ("--gpu", list(&self.gpu)),
            ("--not", list(&self.except)),
            ("--with", list(&self.required)),
            ("--min-free", self.min_free.map(written)),
            ("--capability", self.capability.map(|(major, minor)| format!("{major}.{minor}"))),
            ("--timeout", self.timeout.map(|time| format!("{}s", time.as_secs_f64()))),
            ("--visible", (self.visible == Visible::Index).then(|| "index".to_owned())),
            ("--claims", self.claims.as_ref().map(|path| path.to_string_lossy().into_owned())),
        ] {
            if value.is_some() {
                option(name, value);
            }
        }
        for (name, is_given) in [
            ("--mig", self.mig),
            ("--topology", self.topology),
            ("--accept-used", self.accept_used),
            ("--no-wait", self.no_wait),
        ] {
            if is_given {
                option(name, None);
            }
        }
        words
    }
}

/// How devices are named to a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Visible {
    /// `GPU-8ae3…`.
    Uuid,
    /// `0,2`, for programs that read numbers only.
    Index,
}

impl From<Visible> for gpu_core::visible::Form {
    fn from(visible: Visible) -> Self {
        match visible {
            Visible::Uuid => gpu_core::visible::Form::Uuid,
            Visible::Index => gpu_core::visible::Form::Index,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) wanted: Wanted,
    /// Terminate the command after this time (90s, 10m, 2h) and exit with 124.
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) time_limit: Option<Duration>,
    /// What to do with the command if gpuws is killed.
    #[arg(long, value_name = "WHAT", default_value = "end")]
    on_death: Death,
    /// Time from SIGTERM to SIGKILL.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = time)]
    pub(crate) grace: Duration,
    /// Do not put an nvidia-smi shim on the command's PATH. The shim shows safe-gpu only the leased
    /// GPUs as free.
    #[arg(long)]
    pub(crate) no_nvidia_smi: bool,
    /// How long safe-gpu users wait for the command to use its GPUs; then a placeholder keeps the
    /// GPUs busy.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = time)]
    pub(crate) handoff_timeout: Duration,
    /// Write a JSON report to this file; --json prints it as the last line on standard error.
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) keep: KeepArgs,
    /// With --mem, do not set environment variables that limit the command's memory.
    #[arg(long)]
    pub(crate) keep_env: bool,
    /// The command to run, after `--`.
    #[arg(value_name = "COMMAND", trailing_var_arg = true, required = true)]
    pub(crate) command: Vec<OsString>,
}

impl RunArgs {
    /// Returns what becomes of the command when gpuws is killed.
    pub(crate) fn on_death(&self) -> OnDeath {
        match self.on_death {
            Death::End => OnDeath::End,
            Death::Keep => OnDeath::Keep,
        }
    }
}

/// What becomes of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Death {
    /// Terminate it and all its descendants.
    End,
    /// Let it continue and keep its lease.
    Keep,
}

#[derive(Debug, Args)]
pub(crate) struct ClaimArgs {
    #[command(flatten)]
    pub(crate) wanted: Wanted,
    /// Claim the GPUs, print them, and hold them until the calling process exits.
    #[arg(long, conflicts_with = "export")]
    pub(crate) hold: bool,
    /// Claim the GPUs until the calling shell exits and print shell code: eval "$(gpuws claim
    /// --export)".
    #[arg(long)]
    pub(crate) export: bool,
    /// Also keep a small CUDA context on each GPU, so that tools which query the driver see it in
    /// use. With --hold or --export.
    #[arg(long)]
    pub(crate) placeholder: bool,
    #[command(flatten)]
    pub(crate) keep: KeepArgs,
    /// With --mem, do not print variables that limit frameworks.
    #[arg(long)]
    pub(crate) keep_env: bool,
    /// Process whose descendants may use the GPUs; default: the parent of gpuws.
    #[arg(long = "for", value_name = "PID", value_parser = super::pid)]
    pub(crate) owner: Option<gpu_core::Pid>,
    /// Release a lease taken by --hold or --export, by its ID (see gpuws leases).
    #[arg(long, value_name = "LEASE", conflicts_with_all = CONFLICTS_WITH_RELEASE, value_parser = lease)]
    pub(crate) release: Option<LeaseId>,
}

/// What makes no sense beside the name of a lease.
const CONFLICTS_WITH_RELEASE: [&str; 21] = [
    "hold",
    "export",
    "placeholder",
    "owner",
    "count",
    "mem",
    "gpu",
    "except",
    "required",
    "min_free",
    "capability",
    "topology",
    "accept_used",
    "wait",
    "no_wait",
    "timeout",
    "visible",
    "context",
    "framework",
    "torch_version",
    "keep_env",
];

#[derive(Debug, Args)]
pub(crate) struct LeasesArgs {
    /// Lease directory to use instead of the system-wide one.
    #[arg(long, value_name = "DIR")]
    pub(crate) claims: Option<PathBuf>,
}

const UNITS: [(&str, u64); 8] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("KB", 1_000),
];

/// Returns an amount of memory as it is written.
pub(super) fn written(bytes: Bytes) -> String {
    match UNITS.iter().find(|(_, unit)| bytes.0.is_multiple_of(*unit)) {
        Some((name, unit)) => format!("{}{name}", bytes.0 / unit),
        // A power of two divides without a rest.
        None => format!("{}KiB", bytes.0 as f64 / 1024.0),
    }
}

/// Reads an amount of memory; its unit is part of it.
pub(crate) fn size(text: &str) -> Result<Bytes, String> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = (&text[..digits], text[digits..].trim());
    let unit = UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit));
    let (_, unit) = unit.ok_or("missing unit, e.g. 6GiB or 500MiB")?;
    let amount: f64 = number.parse().map_err(|_| format!("'{number}' is not a number"))?;
    let bytes = amount * *unit as f64;
    // Up to 2^53 bytes, 8 PiB, each one is told apart.
    match bytes >= 1.0 && bytes <= (1_u64 << 53) as f64 {
        true => Ok(Bytes(bytes as u64)),
        false => Err("must be positive and at most 8192TiB".to_owned()),
    }
}

/// Reads a time as people write it; a number alone is seconds.
fn time(text: &str) -> Result<Duration, String> {
    if let Ok(seconds) = text.parse::<f64>() {
        return seconds_within(seconds);
    }
    let time: jiff::SignedDuration = text
        .parse()
        .map_err(|_| "invalid duration; expected e.g. 90s, 10m, 2h or 1h 30m".to_owned())?;
    seconds_within(time.as_secs_f64())
}

fn seconds_within(seconds: f64) -> Result<Duration, String> {
    const YEAR: f64 = 366.0 * 86_400.0;
    match Duration::try_from_secs_f64(seconds) {
        Ok(time) if !time.is_zero() && seconds <= YEAR => Ok(time),
        _ => Err("must be positive and at most one year".to_owned()),
    }
}

fn lease(text: &str) -> Result<LeaseId, String> {
    LeaseId::parse(text).ok_or_else(|| "invalid lease ID; expected e.g. 3f09c2".to_owned())
}

fn capability(text: &str) -> Result<(u32, u32), String> {
    let pair = text.split_once('.').and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
    pair.ok_or_else(|| "expected MAJOR.MINOR, e.g. 8.0".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_size_requires_unit() {
        for (text, bytes) in [
            ("6GiB", 6 << 30),
            ("500 MiB", 500 << 20),
            ("1.5gib", 3 << 29),
            ("2GB", 2_000_000_000),
            ("1TiB", 1 << 40),
        ] {
            assert_eq!(size(text), Ok(Bytes(bytes)), "{text}");
        }
        for text in ["0", "0GiB", "6", "6G", "-1GiB", "GiB", "1e9GiB", "9999999TiB", ".GiB", ""] {
            assert!(size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn memory_size_round_trips() {
        for (bytes, text) in [
            (6 << 30, "6GiB"),
            (3 << 29, "1536MiB"),
            (2_000_000_000, "1953125KiB"),
            (300_000_001, "292968.7509765625KiB"),
            (1_000, "1KB"),
        ] {
            assert_eq!(written(Bytes(bytes)), text);
            assert_eq!(size(text), Ok(Bytes(bytes)));
        }
    }

    #[test]
    fn options_round_trip() {
        #[derive(Debug, clap::Parser)]
        struct Read {
            #[command(flatten)]
            wanted: Wanted,
        }
        let read = |line: &str| {
            let line = line.replace('\'', "");
            <Read as clap::Parser>::parse_from(std::iter::once("x").chain(line.split_whitespace()))
        };
        let line = " -n 2 --mem 6GiB --gpu 0,4,04:00.0 --not 1 --with 2,3 --min-free 500MiB \
                    --capability 8.0 --timeout 0.25s --visible index --claims '/tmp/a+b' \
                    --topology --accept-used --mig";
        let again = read(line).wanted.again();
        assert_eq!(read(&again).wanted.again(), again);
        for word in line.split_whitespace().filter(|word| word.starts_with('-')) {
            assert!(again.contains(word), "{word}: {again}");
        }
        assert!(again.contains("--claims '/tmp/a+b'") && again.contains("--mem 6GiB"), "{again}");
        assert_eq!(read("").wanted.again(), "");
    }

    #[test]
    fn duration_defaults_to_seconds() {
        for (text, millis) in [
            ("90s", 90_000),
            ("10m", 600_000),
            ("1h 30m", 5_400_000),
            ("1h30m", 5_400_000),
            ("2", 2_000),
            ("0.5", 500),
            ("250ms", 250),
        ] {
            assert_eq!(time(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["0", "0s", "-5s", "soon", "", "1e400", "inf", "NaN", "999999d"] {
            assert!(time(text).is_err(), "{text}");
        }
    }
}
