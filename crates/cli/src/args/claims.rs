//! Arguments of the commands that claim devices.

use super::{KeepArgs, shell_word};
use crate::selector::Selector;
use clap::{Args, ValueEnum};
use gpu_core::{Bytes, LeaseId};
use gpu_steward::OnDeath;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

// Which devices are wanted.
#[derive(Debug, Args)]
pub(crate) struct Wanted {
    /// How many devices.
    #[arg(short = 'n', long = "gpus", value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) count: u32,
    /// Only a share: so much memory of each, beside the shares of others (6GiB, 500MiB).
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) mem: Option<Bytes>,
    /// Only among these, by index, UUID or PCI address; may be given again.
    #[arg(long, value_name = "GPU,…", value_delimiter = ',')]
    pub(crate) gpu: Vec<Selector>,
    /// A MIG device, a part of one that is divided; of those of --gpu, where that is given. Without
    /// it one is claimed only where it is named (--gpu MIG-…), or the list that was given names it.
    #[arg(long)]
    pub(crate) mig: bool,
    /// None of these.
    #[arg(long = "not", value_name = "GPU,…", value_delimiter = ',')]
    pub(crate) except: Vec<Selector>,
    /// All of these, and others beside them where more are wanted.
    #[arg(long = "with", value_name = "GPU,…", value_delimiter = ',')]
    pub(crate) required: Vec<Selector>,
    /// Memory that is to be free on each now.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) min_free: Option<Bytes>,
    /// The lowest compute capability.
    #[arg(long, value_name = "MAJOR.MINOR", value_parser = capability)]
    pub(crate) capability: Option<(u32, u32)>,
    /// Take none where it is not known how the devices are connected; else several are chosen by
    /// their connection where that is known.
    #[arg(long)]
    pub(crate) topology: bool,
    /// Take devices that somebody uses who claimed nothing, and such with unexplained memory.
    #[arg(long)]
    pub(crate) accept_used: bool,
    /// Wait until the devices can be had, however long; this is what happens without a word.
    #[arg(long, conflicts_with_all = ["no_wait", "timeout"])]
    wait: bool,
    /// Do not wait: end with 75 when the devices cannot be had now.
    #[arg(long, conflicts_with = "timeout")]
    pub(crate) no_wait: bool,
    /// Wait this long at most for devices, then end with 75 (90s, 10m, 2h).
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) timeout: Option<Duration>,
    /// How the devices are named in CUDA_VISIBLE_DEVICES.
    #[arg(long, value_name = "FORM", default_value = "uuid")]
    pub(crate) visible: Visible,
    /// Keep the leases in this folder instead of the one of the machine.
    #[arg(long, value_name = "FOLDER")]
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
    /// End the command after this time (90s, 10m, 2h); gpuws then ends with 124.
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) time_limit: Option<Duration>,
    /// What becomes of the command when gpuws is killed.
    #[arg(long, value_name = "WHAT", default_value = "end")]
    on_death: Death,
    /// Time from SIGTERM to SIGKILL.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = time)]
    pub(crate) grace: Duration,
    /// Leave nvidia-smi as it is for the command. Else the questions by which safe-gpu looks for
    /// free devices are answered for the command's own.
    #[arg(long)]
    pub(crate) no_nvidia_smi: bool,
    /// How long users of safe-gpu are kept waiting for the command to use its devices. After it a
    /// placeholder keeps the devices in use for them.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = time)]
    pub(crate) handoff_timeout: Duration,
    /// Write what it came to into this file, one JSON object; --json writes the same as the last
    /// line on standard error, behind what the command wrote there.
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) keep: KeepArgs,
    /// Leave the command's environment as it is with --mem: it keeps within its share by itself.
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
    /// It is ended, with everything that it started.
    End,
    /// It goes on and keeps its devices.
    Keep,
}

#[derive(Debug, Args)]
pub(crate) struct ClaimArgs {
    #[command(flatten)]
    pub(crate) wanted: Wanted,
    /// Take the devices, print them, and hold them until the process that asked ends.
    #[arg(long, conflicts_with = "export")]
    pub(crate) hold: bool,
    /// Take the devices and print lines for a shell; they are held until that shell ends:
    /// eval "$(gpuws claim --export)".
    #[arg(long)]
    pub(crate) export: bool,
    /// Keep a tiny CUDA context on each device too, so that others who ask the driver see it in
    /// use: users of safe-gpu, and of no scheme at all. With --hold or --export.
    #[arg(long)]
    pub(crate) placeholder: bool,
    #[command(flatten)]
    pub(crate) keep: KeepArgs,
    /// With --mem, print no variables that make frameworks keep within the share.
    #[arg(long)]
    pub(crate) keep_env: bool,
    /// The process for whose descendants the devices are; else the one that started gpuws.
    #[arg(long = "for", value_name = "PID", value_parser = super::pid)]
    pub(crate) owner: Option<gpu_core::Pid>,
    /// Give back what --hold or --export took, by the name of its lease; gpuws leases shows it.
    #[arg(long, value_name = "LEASE", conflicts_with_all = NOT_TO_RELEASE, value_parser = lease)]
    pub(crate) release: Option<LeaseId>,
}

/// What makes no sense beside the name of a lease.
const NOT_TO_RELEASE: [&str; 21] = [
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
    /// Look for leases in this folder instead of the one of the machine.
    #[arg(long, value_name = "FOLDER")]
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
    let (_, unit) = unit.ok_or("say the unit too: 6GiB, 500MiB")?;
    let amount: f64 = number.parse().map_err(|_| format!("'{number}' is no number"))?;
    let bytes = amount * *unit as f64;
    // Up to 2^53 bytes, 8 PiB, each one is told apart.
    match bytes >= 1.0 && bytes <= (1_u64 << 53) as f64 {
        true => Ok(Bytes(bytes as u64)),
        false => Err("more than nothing, and at most 8192TiB".to_owned()),
    }
}

/// Reads a time as people write it; a number alone is seconds.
fn time(text: &str) -> Result<Duration, String> {
    if let Ok(seconds) = text.parse::<f64>() {
        return seconds_within(seconds);
    }
    let time: jiff::SignedDuration =
        text.parse().map_err(|_| "not a time such as 90s, 10m, 2h or 1h 30m".to_owned())?;
    seconds_within(time.as_secs_f64())
}

fn seconds_within(seconds: f64) -> Result<Duration, String> {
    const YEAR: f64 = 366.0 * 86_400.0;
    match Duration::try_from_secs_f64(seconds) {
        Ok(time) if !time.is_zero() && seconds <= YEAR => Ok(time),
        _ => Err("more than 0 and at most a year".to_owned()),
    }
}

fn lease(text: &str) -> Result<LeaseId, String> {
    LeaseId::parse(text).ok_or_else(|| "not the name of a lease, such as 3f09c2".to_owned())
}

fn capability(text: &str) -> Result<(u32, u32), String> {
    let pair = text.split_once('.').and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
    pair.ok_or_else(|| "not of the form MAJOR.MINOR, such as 8.0".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_amount_of_memory_has_a_unit() {
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
    fn an_amount_is_written_so_that_it_is_read_again() {
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
    fn options_are_written_so_that_they_are_read_again() {
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
    fn a_time_has_a_unit_or_is_seconds() {
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
