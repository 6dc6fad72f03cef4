//! MPS: a limit that the server enforces, independently of the program.

use super::{Advice, Bound, Keeper};
use gpu_core::Bytes;

pub(super) const LIMIT: &str = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT";
/// The variable with the server's directory, if it is not the default one.
pub const PIPES: &str = "CUDA_MPS_PIPE_DIRECTORY";

/// Only devices that the program sees are named: an entry for any other device voids all limits.
const MAX_DEVICES: usize = 64;

impl Bound<'_> {
    /// Sets the MPS server's limit, if there is a server. The limit includes the context.
    pub(super) fn served(&self, advice: &mut Advice) {
        let Some(count) = self.mps.filter(|count| (1..=MAX_DEVICES).contains(count)) else {
            return;
        };
        let had = match self.had(LIMIT).map(|had| limits(&had)) {
            Some(None) => {
                advice.note(format!("{LIMIT} is left unchanged: expected a value like 0=4G,1=4G"));
                return;
            }
            Some(Some(had)) => had,
            None => Vec::new(),
        };
        // By the program's own indexes, because not every driver applies limits by UUID.
        let entry = |device: usize| {
            let had = had.iter().filter(|(of, _)| *of == device).map(|(_, limit)| *limit);
            let limit = had.fold(self.limit, Bytes::min);
            format!("{device}={}M", limit.mib())
        };
        let value: Vec<String> = (0..count).map(entry).collect();
        advice.set(LIMIT, value.join(","), Keeper::Server);
        advice.note(format!(
            "the MPS limit applies only to programs connected to the server; with a different \
                {PIPES} they run unlimited without any message"
        ));
        advice.note(format!(
            "{LIMIT} uses the device indexes visible to the program; if any listed index is \
                missing, the whole list is ignored"
        ));
    }
}

/// Parses `0=4G,1=512M`; `None` for anything else.
fn limits(text: &str) -> Option<Vec<(usize, Bytes)>> {
    let entry = |entry: &str| {
        let (device, limit) = entry.trim().split_once('=')?;
        let (number, unit) =
            match limit.trim().split_at_checked(limit.trim().len().checked_sub(1)?)? {
                (number, "G" | "g") => (number, 1_u64 << 30),
                (number, "M" | "m") => (number, Bytes::MIB),
                _ => return None,
            };
        let bytes = number.parse::<u64>().ok()?.checked_mul(unit)?;
        Some((device.trim().parse().ok()?, Bytes(bytes)))
    };
    text.split(',').map(entry).collect()
}
