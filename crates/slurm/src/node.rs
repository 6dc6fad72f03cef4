//! The state of a node, as `scontrol -o show node` prints it.

/// The state of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeState {
    /// Its words, such as `IDLE` and `DRAIN`.
    pub words: Vec<String>,
    /// Why it is drained, without the user and the time that Slurm adds.
    pub reason: Option<String>,
}

impl NodeState {
    /// Returns whether no new job starts there.
    pub fn is_drained(&self) -> bool {
        self.words.iter().any(|word| matches!(&**word, "DRAIN" | "DRAINED" | "DRAINING"))
    }

    /// Returns whether only the drain keeps jobs away: a node that is down or is about to reboot has
    /// other reasons.
    pub fn is_only_drained(&self) -> bool {
        const HARMLESS: [&str; 10] = [
            "IDLE",
            "MIXED",
            "ALLOCATED",
            "DRAIN",
            "DRAINED",
            "DRAINING",
            "COMPLETING",
            "PLANNED",
            "CLOUD",
            "DYNAMIC_NORM",
        ];
        self.is_drained() && self.words.iter().all(|word| HARMLESS.contains(&&**word))
    }
}

/// Reads the state of a node; `None` if the text has none.
///
/// The reason is the last field in Slurm 22.05; later versions add a comment, which begins on the
/// same line.
pub fn node_state(text: &str) -> Option<NodeState> {
    let line = text.lines().find(|line| line.starts_with("NodeName="))?;
    let state = line.split_ascii_whitespace().find_map(|word| word.strip_prefix("State="))?;
    let words =
        state.split('+').map(|word| word.trim_end_matches(['*', '~', '#', '!', '%', '$', '@']));
    let reason = line.split_once(" Reason=").map(|(_, reason)| {
        let reason = reason.split(" Comment=").next().unwrap_or_default();
        match reason.rfind(" [") {
            Some(at) => &reason[..at],
            None => reason,
        }
    });
    Some(NodeState {
        words: words.map(str::to_owned).collect(),
        reason: reason.map(str::trim).filter(|reason| !reason.is_empty()).map(str::to_owned),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_and_reason_are_read() {
        let line = "NodeName=n1 Arch=x86_64 OS=Linux 6.18 State=IDLE+DRAIN ThreadsPerCore=1 \
                    AveWatts=0 Reason=gpuws: GPU 1 held by 4711 [root@2026-11-24T20:02:52]";
        let state = node_state(line).unwrap();
        assert_eq!(state.words, ["IDLE", "DRAIN"]);
        assert_eq!(state.reason.as_deref(), Some("gpuws: GPU 1 held by 4711"));
        assert!(state.is_drained() && state.is_only_drained());
        let commented = format!("{line} Comment=Reason=x");
        assert_eq!(node_state(&commented).unwrap().reason, state.reason);
    }

    #[test]
    fn other_states_are_not_only_drained() {
        for (state, drained) in [
            ("IDLE", false),
            ("DOWN*+DRAIN", true),
            ("IDLE+DRAIN+REBOOT_REQUESTED", true),
            ("MIXED+DRAIN+MAINTENANCE", true),
            ("IDLE+DRAIN+NOT_RESPONDING", true),
            ("", false),
        ] {
            let node = node_state(&format!("NodeName=n State={state} X=y")).unwrap();
            assert_eq!((node.is_drained(), node.is_only_drained()), (drained, false), "{state}");
        }
        for none in ["", "Node n9 not found", "NodeName=n9", "State=IDLE"] {
            assert_eq!(node_state(none), None, "{none}");
        }
    }
}
