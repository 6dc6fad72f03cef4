//! Arguments that describe the requested devices.

use crate::args::time;
use clap::{Args, ValueEnum};
use gpu_core::{Bytes, Selector};
use gpu_report::wording::shell_word;
use std::path::PathBuf;
use std::time::Duration;

// The requested devices.
#[derive(Debug, Args)]
pub(crate) struct RequestArgs {
    /// Number of GPUs.
    #[arg(short = 'n', long = "gpus", value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) count: u32,
    /// Claim only this much memory of each GPU and share the rest (6GiB, 500MiB).
    #[arg(long, value_name = "SIZE")]
    pub(crate) mem: Option<Bytes>,
    /// Choose only among these GPUs, by index (0,2-3), UUID or PCI bus ID, or all; repeatable.
    #[arg(long, value_name = "GPU,…", value_delimiter = ',')]
    pub(crate) gpu: Vec<Selector>,
    /// Claim a MIG device, from those in --gpu if given. By default a MIG device is claimed only if
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
    #[arg(long, value_name = "SIZE")]
    pub(crate) min_free: Option<Bytes>,
    /// Minimum compute capability.
    #[arg(long, value_name = "MAJOR.MINOR", value_parser = capability)]
    pub(crate) capability: Option<(u32, u32)>,
    /// Vendor of the GPUs. By default that of the first GPU: a claim gets GPUs of one vendor.
    #[arg(long, value_name = "NAME", value_parser = ["nvidia", "amd", "intel"])]
    pub(crate) vendor: Option<String>,
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

impl RequestArgs {
    /// Returns these options as command-line text, with a space before each.
    pub(crate) fn again(&self) -> String {
        let mut words = self.words();
        words.extend(self.no_wait.then(|| "--no-wait".to_owned()));
        if let Some(time) = self.timeout {
            words.extend(["--timeout".to_owned(), format!("{}s", time.as_secs_f64())]);
        }
        words.iter().map(|word| format!(" {}", shell_word(word))).collect()
    }

    /// Returns the command that previews such a claim.
    pub(crate) fn preview(&self) -> String {
        let words = self.words();
        words.iter().fold("gpuws claim".to_owned(), |line, word| line + " " + &shell_word(word))
    }

    /// Returns these options as words, without those about waiting.
    pub(crate) fn words(&self) -> Vec<String> {
        let list = |named: &[Selector]| {
            let named: Vec<String> = named.iter().map(ToString::to_string).collect();
            (!named.is_empty()).then(|| named.join(","))
        };
        let mut words = Vec::new();
        for (name, value) in [
            ("-n", (self.count != 1).then(|| self.count.to_string())),
            ("--mem", self.mem.map(Bytes::exact)),
            ("--gpu", list(&self.gpu)),
            ("--not", list(&self.except)),
            ("--with", list(&self.required)),
            ("--min-free", self.min_free.map(Bytes::exact)),
            ("--capability", self.capability.map(|(major, minor)| format!("{major}.{minor}"))),
            ("--vendor", self.vendor.clone()),
            ("--visible", (self.visible == Visible::Index).then(|| "index".to_owned())),
            ("--claims", self.claims.as_ref().map(|path| path.to_string_lossy().into_owned())),
        ] {
            words.extend(value.into_iter().flat_map(|value| [name.to_owned(), value]));
        }
        for (name, is_given) in [
            ("--mig", self.mig),
            ("--topology", self.topology),
            ("--accept-used", self.accept_used),
        ] {
            words.extend(is_given.then(|| name.to_owned()));
        }
        words
    }
}

/// The format in which a program receives its devices.
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

fn capability(text: &str) -> Result<(u32, u32), String> {
    let pair = text.split_once('.').and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
    pair.ok_or_else(|| "expected MAJOR.MINOR, e.g. 8.0".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_round_trip() {
        #[derive(Debug, clap::Parser)]
        struct Read {
            #[command(flatten)]
            request: RequestArgs,
        }
        let read = |line: &str| {
            let line = line.replace('\'', "");
            <Read as clap::Parser>::parse_from(std::iter::once("x").chain(line.split_whitespace()))
        };
        let line = " -n 2 --mem 6GiB --gpu 0,4,04:00.0 --not 1 --with 2,3 --min-free 500MiB \
                    --capability 8.0 --vendor amd --timeout 0.25s --visible index --claims '/tmp/a+b' \
                    --topology --accept-used --mig";
        let again = read(line).request.again();
        assert_eq!(read(&again).request.again(), again);
        for word in line.split_whitespace().filter(|word| word.starts_with('-')) {
            assert!(again.contains(word), "{word}: {again}");
        }
        assert!(again.contains("--claims '/tmp/a+b'") && again.contains("--mem 6GiB"), "{again}");
        assert_eq!(read("").request.again(), "");
        let waiting = read("-n 3 --gpu 0,1,2 --mem 6GiB --timeout 5s").request;
        assert_eq!(waiting.preview(), "gpuws claim -n 3 --mem 6GiB --gpu 0,1,2");
    }
}
