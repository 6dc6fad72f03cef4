//! The GPUs that Slurm has given to jobs.
//!
//! The text of a job contains what its user wrote, such as its name. Every match counts, so a user
//! can make a job seem to have more devices on a node, and never fewer.

use crate::job::positions;
use std::collections::BTreeSet;

/// The GPUs of a node that a job has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allocation {
    /// By position in Slurm's list.
    positions: BTreeSet<u32>,
    /// It has GPUs or shares of them, and the text does not say which.
    unknown: bool,
}

impl Allocation {
    /// Returns whether the job may have the device at this position.
    pub fn may_have(&self, position: u32) -> bool {
        self.unknown || self.positions.contains(&position)
    }

    /// Adds the devices of another job.
    pub fn add(&mut self, other: Allocation) {
        self.positions.extend(other.positions);
        self.unknown |= other.unknown;
    }
}

/// Returns the jobs in the output of `squeue -h -o %A`, each once.
pub fn job_ids(text: &str) -> BTreeSet<String> {
    let numbers = text.lines().filter_map(|line| line.trim().parse::<u32>().ok());
    numbers.map(|number| number.to_string()).collect()
}

/// Returns the GPUs that a job has on a node, from `scontrol -d -o show job`.
///
/// There, each part of the job's nodes has `Nodes=n[1-2] … GRES=gpu:p100:2(IDX:0-1),shard:1(IDX:3)`.
/// Newer versions write shards as a fraction per device, `shard:1(0/4,1/4)`.
pub fn allocation(text: &str, node: &str) -> Allocation {
    let mut found = Allocation::default();
    let mut here = true;
    for word in text.split_ascii_whitespace() {
        if let Some(nodes) = word.strip_prefix("Nodes=") {
            here = may_contain(nodes, node);
        } else if let Some(gres) = word.strip_prefix("GRES=").filter(|_| here) {
            gres_of(gres).into_iter().for_each(|gres| read(gres, &mut found));
        }
    }
    found
}

/// Returns whether a list of nodes may contain one: a range counts as if it did.
fn may_contain(nodes: &str, node: &str) -> bool {
    nodes.contains('[') || nodes.split(',').any(|name| name == node)
}

/// Splits a list of gres at the commas outside of parentheses.
fn gres_of(list: &str) -> Vec<&str> {
    let mut depth = 0_u32;
    let outside = move |c: char| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    };
    list.split(outside).collect()
}

fn read(gres: &str, found: &mut Allocation) {
    let name = gres.split([':', '(']).next().unwrap_or_default();
    if !matches!(name, "gpu" | "shard" | "mps") {
        return;
    }
    let inner = gres.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')'));
    let list = inner.and_then(|inner| inner.strip_prefix("IDX:")).and_then(positions);
    match (list, inner.and_then(fractions)) {
        (Some(list), _) | (None, Some(list)) => found.positions.extend(list),
        (None, None) => found.unknown = true,
    }
}

/// Parses `0/4,1/4` to the positions with a part in use.
fn fractions(text: &str) -> Option<Vec<u32>> {
    let mut used = Vec::new();
    for (position, part) in (0..).zip(text.split(',')) {
        let (parts, _) = part.split_once('/')?;
        if parts.parse::<u64>().ok()? > 0 {
            used.push(position);
        }
    }
    Some(used)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn on(text: &str) -> Vec<u32> {
        let found = allocation(text, "n1");
        (0..8).filter(|position| found.may_have(*position)).collect()
    }

    const ALL: [u32; 8] = [0, 1, 2, 3, 4, 5, 6, 7];

    #[test]
    fn devices_and_shards_of_a_job_on_a_node_are_read() {
        for (text, expected) in [
            // Slurm 22.05.8.
            (
                "JobId=1 JOB_GRES=gpu:p100:2 Nodes=n1 CPU_IDs=0 Mem=0 GRES=gpu:p100:2(IDX:0-1) X=y",
                &ALL[..2],
            ),
            ("Nodes=n1 CPU_IDs=1 Mem=0 GRES=shard:1(IDX:2) MinCPUsNode=1", &ALL[2..3]),
            ("Nodes=n1 GRES=gpu:a:1(IDX:3),gpu:b:1(IDX:4)", &ALL[3..5]),
            // Later versions.
            ("Nodes=n1 GRES=shard:p100:1(0/4,1/4)", &ALL[1..2]),
            ("Nodes=n1 GRES=craynetwork:1", &[]),
            ("Nodes=n1 GRES= MinCPUsNode=1", &[]),
            ("Nodes=n2 GRES=gpu:1(IDX:0)", &[]),
            ("Nodes=n2 GRES=gpu:1(IDX:0) Nodes=n1 GRES=gpu:1(IDX:5)", &ALL[5..6]),
            ("Nodes=n[1-3] GRES=gpu:1(IDX:6)", &ALL[6..7]),
            // What cannot be read may be any device.
            ("Nodes=n1 GRES=gpu:2", &ALL),
            ("Nodes=n1 GRES=gpu:2(IDX:0-", &ALL),
            ("Nodes=n1 GRES=mps:50(what)", &ALL),
        ] {
            assert_eq!(on(text), expected, "{text}");
        }
    }

    #[test]
    fn text_of_the_user_only_adds_devices() {
        let honest = "Nodes=n1 GRES=gpu:1(IDX:2)";
        let name = "JobName=x Nodes=n9 GRES=gpu:1(IDX:9) JobState=COMPLETED ";
        assert_eq!(on(&format!("{name}{honest}")), [2]);
        assert_eq!(on(&format!("JobName=Nodes=n1 GRES=gpu:1(IDX:0) {honest}")), [0, 2]);
    }

    #[test]
    fn job_numbers_are_read_once() {
        let expected: BTreeSet<String> = ["12", "7"].map(str::to_owned).into();
        assert_eq!(job_ids("7\n12\n7\nslurm_load_jobs error\n-1\n7_3\n"), expected);
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in "[ -~]{0,60}(GRES=[gpu:(IDX0-9/,)]{0,30} ?){0,3}") {
            let found = allocation(&text, "n1");
            prop_assert!(found.positions.len() <= 4096 * 4);
        }
    }
}
