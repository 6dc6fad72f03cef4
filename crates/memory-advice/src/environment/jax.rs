//! JAX: the fraction of the device that XLA's allocator may use.

use super::{Advice, Bound, Keeper, UNKNOWN_TOTAL};

pub(super) const FRACTION: &str = "XLA_CLIENT_MEM_FRACTION";
pub(super) const FRACTION_OLD: &str = "XLA_PYTHON_CLIENT_MEM_FRACTION";
pub(super) const ALLOCATOR: &str = "XLA_PYTHON_CLIENT_ALLOCATOR";
pub(super) const PREALLOCATE: &str = "XLA_PYTHON_CLIENT_PREALLOCATE";

impl Bound<'_> {
    pub(super) fn jax(&self, advice: &mut Advice) {
        let Some(fraction) = self.fraction() else {
            advice.note(format!("{UNKNOWN_TOTAL}, and so is JAX's share of it"));
            if (self.inherited)(PREALLOCATE).is_none() {
                // By default, JAX takes three quarters of the device at startup.
                advice.set(PREALLOCATE, "false", Keeper::Nobody);
            }
            return;
        };
        let allocator = self.had(ALLOCATOR).map(|name| name.trim().to_lowercase());
        let keeps = matches!(allocator.as_deref(), None | Some("default" | "bfc"));
        if !keeps {
            advice.note(format!(
                "{ALLOCATOR} selects an allocator other than bfc; only bfc enforces a limit"
            ));
        }
        if self.had(FRACTION).is_some() && self.had(FRACTION_OLD).is_some() {
            advice.note(format!(
                "both {FRACTION} and {FRACTION_OLD} are set: JAX does not start with both"
            ));
        }
        // Every version reads the old name; a program that finds both names exits at startup.
        let name = if self.had(FRACTION).is_some() { FRACTION } else { FRACTION_OLD };
        let had = self.had(name).unwrap_or_default();
        let keeper = if keeps { Keeper::Allocator } else { Keeper::Nobody };
        advice.set(name, self.smaller(&had, &fraction).unwrap_or(&fraction), keeper);
    }
}
