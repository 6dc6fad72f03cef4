//! The state of a node, as `scontrol -o show node` prints it.

use crate::held::is_own_reason;

/// The state of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeState {
    /// Its words, such as `IDLE` and `DRAIN`.
    pub words: Vec<String>,
    /// Why it is drained, without the user and the time that Slurm adds.
    pub reason: Option<String>,
}

impl NodeState {
    /// Returns whether new jobs are kept off the node.
    pub fn is_drained(&self) -> bool {
        self.words.iter().any(|word| matches!(&**word, "DRAIN" | "DRAINED" | "DRAINING"))
    }

    /// Returns why gpuws may not change the state: another program or person set the reason, or the
    /// state is more than a drain by gpuws, such as a node that is down, fails or is about to
    /// reboot. `None` if gpuws may drain the node, or undo its drain.
    pub fn kept(&self) -> Option<String> {
        // This program runs on the node, so the node is up even if it has not answered the last
        // ping.
        const OURS: [&str; 12] = [
            "IDLE",
            "MIXED",
            "ALLOCATED",
            "DRAIN",
            "DRAINED",
            "DRAINING",
            "COMPLETING",
            "PLANNED",
            "RESERVED",
            "NOT_RESPONDING",
            "CLOUD",
            "DYNAMIC_NORM",
        ];
        if let Some(other) = self.reason.as_ref().filter(|reason| !is_own_reason(reason)) {
            return Some(other.clone());
        }
        let is_ours = self.words.iter().all(|word| OURS.contains(&&**word))
            && (self.reason.is_some() || !self.is_drained());
        (!is_ours).then(|| self.words.join("+"))
    }
}

/// Reads the state of a node; `None` if the text has none.
///
/// The reason is the last field in Slurm 22.05; later versions add a comment and more. Slurm writes
/// ` [user@time]` after the first line of a reason, and then its other lines, which are part of it.
pub fn node_state(text: &str) -> Option<NodeState> {
    const AFTER: [&str; 3] = [" Comment=", " Extra=", " InstanceId="];
    let lines: Vec<&str> = text.lines().skip_while(|l| !l.starts_with("NodeName=")).collect();
    let line = lines.join(" ");
    let state = line.split_ascii_whitespace().find_map(|word| word.strip_prefix("State="))?;
    let words =
        state.split('+').map(|word| word.trim_end_matches(['*', '~', '#', '!', '%', '$', '@']));
    let reason = line.split_once(" Reason=").map(|(_, reason)| {
        let end = AFTER.iter().filter_map(|field| reason.find(field)).min();
        let reason = reason[..end.unwrap_or(reason.len())].trim_end();
        let by = reason.strip_suffix(']').and_then(|reason| reason.rsplit_once(" ["));
        by.map_or(reason, |(reason, _)| reason)
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
        assert!(state.is_drained() && state.kept().is_none());
        let commented = format!("{line} Comment=Reason=x");
        assert_eq!(node_state(&commented).unwrap().reason, state.reason);
        let more = format!("{line} Extra=x InstanceId=i-1");
        assert_eq!(node_state(&more).unwrap().reason, state.reason);
    }

    #[test]
    fn further_lines_of_a_reason_are_part_of_it() {
        let own = "NodeName=n1 State=IDLE+DRAIN Reason=gpuws: GPU 0 held by 12 [root@2026-11-24]";
        for more in [
            "        RMA Carol",
            "\n       RMA Carol",
            " RMA [Carol]",
            " [Carol]",
            " RMA Comment=x",
        ] {
            let state = node_state(&format!("{own}{more}")).unwrap();
            assert!(state.kept().is_some(), "{more}: {:?}", state.reason);
        }
        assert_eq!(node_state(&format!("{own}\n\n")).unwrap().kept(), None);
    }

    #[test]
    fn state_beyond_a_drain_is_kept() {
        let own = "gpuws: GPU 1 held by 4711";
        for (state, reason, kept) in [
            ("IDLE", "", None),
            ("MIXED+DRAIN", own, None),
            ("IDLE*+DRAIN+NOT_RESPONDING+RESERVED", own, None),
            ("IDLE+DRAIN", "", Some("IDLE+DRAIN")),
            ("IDLE+DRAIN", "RMA", Some("RMA")),
            ("IDLE", "RMA", Some("RMA")),
            ("DOWN*+DRAIN", own, Some("DOWN+DRAIN")),
            ("IDLE+FAIL", "", Some("IDLE+FAIL")),
            ("IDLE+DRAIN+REBOOT_REQUESTED", own, Some("IDLE+DRAIN+REBOOT_REQUESTED")),
            ("MIXED+DRAIN+MAINTENANCE", own, Some("MIXED+DRAIN+MAINTENANCE")),
            ("", "", Some("")),
        ] {
            let line = format!("NodeName=n State={state} X=y Reason={reason} [root@2026]");
            let node = node_state(&line).unwrap();
            assert_eq!(node.kept().as_deref(), kept, "{state} {reason}");
        }
        for none in ["", "Node n9 not found", "NodeName=n9", "State=IDLE"] {
            assert_eq!(node_state(none), None, "{none}");
        }
    }
}
