/// The result of a run.
pub(crate) struct Verdict {
    pub(crate) figures: String,
    pub(crate) violations: Vec<String>,
    /// Whether honest processes and attackers interacted at all.
    pub(crate) met: bool,
    /// The attackers' last steps.
    pub(crate) last_steps: String,
    pub(crate) seed: u64,
}

impl Verdict {
    /// Returns whether a violation contains these words.
    pub(crate) fn has(&self, words: &str) -> bool {
        self.violations.iter().any(|violation| violation.contains(words))
    }

    /// Returns the violations, and the attackers' steps before them.
    pub(crate) fn report(&self) -> String {
        let violations: Vec<&str> = self.violations.iter().take(20).map(String::as_str).collect();
        let violations = violations.join("\n");
        format!("seed {}:\n{violations}\n{}", self.seed, self.last_steps)
    }
}
