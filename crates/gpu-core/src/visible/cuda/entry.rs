//! An entry of `CUDA_VISIBLE_DEVICES`.

use std::fmt;

/// The longest name that is parsed.
const LONGEST_NAME: usize = 96;

/// An entry of the list.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Visible {
    /// An index, in CUDA's order.
    Index(u32),
    /// `GPU-…`: the UUID of a device, or a prefix of it.
    Gpu(String),
    /// `MIG-…`: the UUID of a MIG device.
    Mig(String),
    /// `MIG-GPU-…/G/C`: a MIG device by its parts, as drivers up to R460 name it.
    MigPart {
        /// The UUID of the whole device, `GPU-…`.
        gpu: String,
        /// GPU instance.
        gpu_instance: u32,
        /// Compute instance.
        compute_instance: u32,
    },
}

impl Visible {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let plain = |name: &str| {
            let fits = (1..=LONGEST_NAME).contains(&name.len());
            fits && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        };
        if text.strip_prefix("GPU-").is_some_and(plain) {
            return Some(Visible::Gpu(text.to_owned()));
        }
        let Some(name) = text.strip_prefix("MIG-") else { return number(text).map(Visible::Index) };
        let mut parts = name.split('/');
        let name = parts.next().filter(|name| plain(name))?;
        let Some(gpu_instance) = parts.next() else { return Some(Visible::Mig(text.to_owned())) };
        let gpu = if name.starts_with("GPU-") { name.to_owned() } else { format!("GPU-{name}") };
        let (gpu_instance, compute_instance) = (digits(gpu_instance)?, digits(parts.next()?)?);
        let is_whole = parts.next().is_none();
        is_whole.then_some(Visible::MigPart { gpu, gpu_instance, compute_instance })
    }

    /// Returns whether both can be in one list.
    pub(super) fn is_compatible_with(&self, other: &Visible) -> bool {
        let kind = |entry: &Visible| match entry {
            Visible::Index(_) => 0,
            Visible::Gpu(_) => 1,
            Visible::Mig(_) | Visible::MigPart { .. } => 2,
        };
        kind(self) == kind(other)
    }
}

/// Parses a number as C's `strtoul` does, which CUDA uses: leading blanks, a sign, and anything
/// after the digits. `None` if there are no digits, or they name no device.
fn number(text: &str) -> Option<u32> {
    let text = text.trim_ascii_start();
    let (negative, text) = match text.strip_prefix(['+', '-']) {
        Some(rest) => (text.starts_with('-'), rest),
        None => (false, text),
    };
    let end = text.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    let number: u32 = text[..end].parse().ok()?;
    (!negative || number == 0).then_some(number)
}

fn digits(text: &str) -> Option<u32> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

impl fmt::Display for Visible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Visible::Index(index) => write!(f, "{index}"),
            Visible::Gpu(name) | Visible::Mig(name) => f.write_str(name),
            Visible::MigPart { gpu, gpu_instance, compute_instance } => {
                write!(f, "MIG-{gpu}/{gpu_instance}/{compute_instance}")
            }
        }
    }
}
