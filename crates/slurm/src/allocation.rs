//! The GPUs that Slurm has given to jobs.
//!
//! The text of a job contains what its user wrote, such as its name, and a user can imitate Slurm's
//! output. Slurm's own part is always there, so only what all parts of that form agree on counts. A
//! user can therefore make a job seem to have fewer devices than it has, which affects no other
//! user, but never more, which would keep leftovers of earlier jobs alive.

use crate::job::positions;
use std::collections::{BTreeMap, BTreeSet};

/// The GPUs that a job has on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allocation {
    /// Positions in Slurm's list.
    positions: BTreeSet<u32>,
    /// The job has GPUs or shares of them, and the text does not say which.
    unknown: bool,
}

impl Allocation {
    /// Returns whether the job may have the device at this position.
    pub fn may_have(&self, position: u32) -> bool {
        self.unknown || self.positions.contains(&position)
    }

    /// Returns whether the job has devices, and the text does not say which.
    pub fn is_unknown(&self) -> bool {
        self.unknown
    }

    /// Keeps the devices that both texts name.
    fn intersect(self, other: Allocation) -> Allocation {
        let positions = match (self.unknown, other.unknown) {
            (false, false) => &self.positions & &other.positions,
            (true, false) => other.positions,
            (false, true) => self.positions,
            (true, true) => &self.positions | &other.positions,
        };
        Allocation { positions, unknown: self.unknown && other.unknown }
    }

    /// Adds the devices of another job.
    pub fn add(&mut self, other: Allocation) {
        self.positions.extend(other.positions);
        self.unknown |= other.unknown;
    }
}

/// Returns the jobs in the output of `squeue -h -o '%A %i'` by number, each with the name by which
/// `scontrol` selects it alone: the number of one task of an array can stand for all of them.
pub fn job_names(text: &str) -> BTreeMap<String, String> {
    let names = text.lines().filter_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let number = words.next()?.parse::<u32>().ok()?.to_string();
        let is_number = |part: &str| part.parse::<u32>().is_ok();
        let name = words.next().filter(|name| name.split(['_', '+']).all(is_number));
        let name = name.map_or_else(|| number.clone(), str::to_owned);
        Some((number, name))
    });
    names.collect()
}

/// Returns the GPUs that a job has on a node, from `scontrol -d -o show job`.
///
/// In that output, each part of the job's nodes is `Nodes=n[1-2] CPU_IDs=0 Mem=0
/// GRES=gpu:p100:2(IDX:0-1)`, one directly after the other. Newer versions write shards as a
/// fraction per device, `shard:1(0/4,1/4)`.
pub fn allocation(text: &str, node: &str) -> Allocation {
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    let mut rest = &words[..];
    let mut all: Option<Allocation> = None;
    let mut section: Option<Allocation> = None;
    loop {
        if let Some((nodes, gres)) = part(rest) {
            let section = section.get_or_insert_default();
            if may_contain(nodes, node) {
                gres_of(gres).into_iter().for_each(|gres| read(gres, section));
            }
            rest = &rest[PART.len()..];
            continue;
        }
        if let Some(section) = section.take() {
            all = Some(match all {
                Some(all) => all.intersect(section),
                None => section,
            });
        }
        match rest {
            [] => break,
            [_, others @ ..] => rest = others,
        }
    }
    // An unknown output format: any device may be the job's.
    let is_like_it = || words.iter().any(|word| word.starts_with("GRES="));
    all.unwrap_or_else(|| Allocation { positions: BTreeSet::new(), unknown: is_like_it() })
}

/// The fields of a part of a job's nodes (`src/api/job_info.c`).
const PART: [&str; 4] = ["Nodes=", "CPU_IDs=", "Mem=", "GRES="];

/// Returns the nodes and the gres of the part that starts with these words.
fn part<'a>(words: &[&'a str]) -> Option<(&'a str, &'a str)> {
    let [nodes, cpus, memory, gres] = *words.first_chunk()?;
    let is_part = cpus.starts_with(PART[1]) && memory.starts_with(PART[2]);
    Some((nodes.strip_prefix(PART[0])?, gres.strip_prefix(PART[3])?)).filter(|_| is_part)
}

/// Returns whether a list of nodes may contain one: a range counts as containing it.
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
                "JobId=1 JOB_GRES=gpu:p100:2   Nodes=n1 CPU_IDs=0 Mem=0 GRES=gpu:p100:2(IDX:0-1) X=y",
                &ALL[..2],
            ),
            ("Nodes=n1 CPU_IDs=1 Mem=0 GRES=shard:1(IDX:2) MinCPUsNode=1", &ALL[2..3]),
            ("Nodes=n1 CPU_IDs=1 Mem=0 GRES=gpu:a:1(IDX:3),gpu:b:1(IDX:4)", &ALL[3..5]),
            // Later versions.
            ("Nodes=n1 CPU_IDs=1 Mem=0 GRES=shard:p100:1(0/4,1/4)", &ALL[1..2]),
            ("Nodes=n1 CPU_IDs=1 Mem=0 GRES=craynetwork:1", &[]),
            ("Nodes=n1 CPU_IDs=1 Mem=0 GRES= MinCPUsNode=1", &[]),
            ("Nodes=n2 CPU_IDs=1 Mem=0 GRES=gpu:1(IDX:0)", &[]),
            (
                "Nodes=n2 CPU_IDs=1 Mem=0 GRES=gpu:1(IDX:0) Nodes=n1 CPU_IDs=1 Mem=0 GRES=gpu:1(IDX:5)",
                &ALL[5..6],
            ),
            ("Nodes=n[1-3] CPU_IDs=1 Mem=0 GRES=gpu:1(IDX:6)", &ALL[6..7]),
            // An unreadable list may contain any device.
            ("Nodes=n1 CPU_IDs=1 Mem=0 GRES=gpu:2", &ALL),
            ("Nodes=n1 CPU_IDs=1 Mem=0 GRES=gpu:2(IDX:0-", &ALL),
            ("Nodes=n1 CPU_IDs=1 Mem=0 GRES=mps:50(what)", &ALL),
            ("Nodes=n1 Cores=1 GRES=gpu:1(IDX:0)", &ALL),
            ("JobId=1 NodeList=n1 JOB_GRES=gpu:1", &[]),
        ] {
            assert_eq!(on(text), expected, "{text}");
        }
    }

    #[test]
    fn text_of_the_user_adds_no_device() {
        let honest = "Nodes=n1 CPU_IDs=0 Mem=0 GRES=gpu:1(IDX:2) MinCPUsNode=1";
        for own in [
            "x GRES=gpu:1",
            "Nodes=n1 GRES=gpu:8",
            "Nodes=n1 CPU_IDs=0 Mem=0 GRES=gpu:8",
            "Nodes=n1 CPU_IDs=0 Mem=0 GRES=gpu:3(IDX:0-2)",
            "\nJobId=8 JobName=x Nodes=n1 CPU_IDs=0 Mem=0 GRES=gpu:3(IDX:0-2) Nodes=n9",
            "Nodes=n1 CPU_IDs=0 Mem=0",
        ] {
            let before = format!("JobId=7 JobName={own} UserId=alice {honest} Command=x");
            let after = format!("JobId=7 JobName=x UserId=alice {honest} Command={own}");
            assert_eq!((on(&before), on(&after)), (vec![2], vec![2]), "{own}");
        }
        let fewer = "JobName=x Nodes=n1 CPU_IDs=0 Mem=0 GRES=gpu:1(IDX:0) UserId=alice";
        assert!(on(&format!("{fewer} {honest}")).is_empty(), "their own affair");
    }

    #[test]
    fn task_of_an_array_is_named_alone() {
        let text =
            "7 7\n12 10_2\n7 7\n13 12+1\nslurm_load_jobs error\n-1 1\n7_3 7_3\n14 10_[3-9]\n15";
        let expected = [("12", "10_2"), ("13", "12+1"), ("14", "14"), ("15", "15"), ("7", "7")];
        let owned = expected.map(|(number, name)| (number.to_owned(), name.to_owned()));
        assert_eq!(job_names(text), owned.into());
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in "[ -~]{0,60}(Nodes=n1 CPU_IDs= Mem= GRES=[gpu:(IDX0-9/,)]{0,30} ?){0,3}") {
            let found = allocation(&text, "n1");
            prop_assert!(found.positions.len() <= 4096 * 4);
        }
    }
}
