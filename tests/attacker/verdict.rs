//! What came out of a run.

/// What came out of a run.
pub(crate) struct Verdict {
    pub(crate) figures: String,
    pub(crate) violations: Vec<String>,
    /// What the run is about happened: honest processes and attackers met.
    pub(crate) met: bool,
    /// What the attackers did last.
    pub(crate) last_steps: String,
    pub(crate) seed: u64,
}

impl Verdict {
    /// Tells whether one of the violations is of this kind.
    pub(crate) fn has(&self, words: &str) -> bool {
        self.violations.iter().any(|violation| violation.contains(words))
    }

    /// Returns the violations, and what the attacker did before.
    pub(crate) fn report(&self) -> String {
        let violations: Vec<&str> = self.violations.iter().take(20).map(String::as_str).collect();
        let violations = violations.join("\n");
        format!("seed {}:\n{violations}\n{}", self.seed, self.last_steps)
    }
}
