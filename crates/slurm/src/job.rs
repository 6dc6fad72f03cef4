//! The job that slurmd runs a Prolog or an Epilog for.

use crate::gres::NodeDevice;
use gpu_core::{Error, ErrorKind, Result};

/// The most positions in a list.
const POSITIONS: usize = 1024;

/// A job, from the variables of its Prolog or Epilog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Its number (`SLURM_JOB_ID`).
    pub id: String,
    /// Its user (`SLURM_JOB_UID`).
    pub uid: u32,
    /// The name of its cgroup since Slurm 26.05 (`SLURM_JOB_SLUID`).
    pub sluid: Option<String>,
    /// Its GPUs on this node, by position in Slurm's list (`SLURM_JOB_GPUS`). A job with shards has
    /// this variable too.
    pub positions: Vec<u32>,
}

impl Job {
    /// Reads a job from the environment of a Prolog or an Epilog.
    ///
    /// # Errors
    /// `Invalid` when a variable is missing or not a number.
    pub fn from_environment(variable: &dyn Fn(&str) -> Option<String>) -> Result<Self> {
        let number = |name: &str| -> Result<u32> {
            let invalid = |why: &str| {
                Error::new(ErrorKind::Invalid, format!("read {name}")).with_source(why.to_owned())
            };
            let text = variable(name).ok_or_else(|| invalid("slurmd did not set it"))?;
            text.parse().map_err(|_| invalid("it is not a number"))
        };
        let positions = match variable("SLURM_JOB_GPUS") {
            None => Vec::new(),
            Some(text) => positions(&text).ok_or_else(|| {
                Error::new(ErrorKind::Invalid, "read SLURM_JOB_GPUS")
                    .with_source("it is not a list of numbers")
            })?,
        };
        Ok(Job {
            id: number("SLURM_JOB_ID")?.to_string(),
            uid: number("SLURM_JOB_UID")?,
            sluid: variable("SLURM_JOB_SLUID").filter(|sluid| !sluid.is_empty()),
            positions,
        })
    }

    /// Returns the job's devices among those of its node.
    pub fn devices<'a>(&self, node: &'a [NodeDevice]) -> Vec<&'a NodeDevice> {
        node.iter().filter(|device| self.positions.contains(&device.position)).collect()
    }

    /// Returns whether a cgroup with this name belongs to the job.
    pub fn is_named(&self, name: &str) -> bool {
        name == self.id || self.sluid.as_deref() == Some(name)
    }
}

/// Parses a list of positions such as `0,2-3`; `None` if it is not one.
pub fn positions(text: &str) -> Option<Vec<u32>> {
    let mut found = Vec::new();
    for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
        let (first, last) = entry.split_once('-').unwrap_or((entry, entry));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        if last < first || (last - first) as usize >= POSITIONS || found.len() >= POSITIONS {
            return None;
        }
        found.extend(first..=last);
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(gpus: &str, id: &str) -> Result<Job> {
        Job::from_environment(&|name| match name {
            "SLURM_JOB_ID" => Some(id.to_owned()),
            "SLURM_JOB_UID" => Some("1000".to_owned()),
            "SLURM_JOB_GPUS" => Some(gpus.to_owned()),
            _ => None,
        })
    }

    #[test]
    fn lists_of_positions_are_read() {
        for (text, expected) in [
            ("0", Some(vec![0])),
            ("0,2-3", Some(vec![0, 2, 3])),
            ("", Some(vec![])),
            ("3-1", None),
            ("0-4294967295", None),
            ("4294967294-4294967295", Some(vec![4_294_967_294, 4_294_967_295])),
            ("GPU-1", None),
            ("-1", None),
            ("0x1", None),
        ] {
            assert_eq!(positions(text), expected, "{text}");
        }
        assert_eq!(positions(&"0-1000,".repeat(3)), None);
    }

    #[test]
    fn job_without_numbers_is_refused() {
        let job = |gpus, id| job(gpus, id).map_err(|error| error.fault().text);
        assert_eq!(job("1", "7").map(|job| job.positions), Ok(vec![1]));
        assert_eq!(job("0", "../7").unwrap_err(), "read SLURM_JOB_ID: it is not a number");
        assert_eq!(
            job("all", "7").unwrap_err(),
            "read SLURM_JOB_GPUS: it is not a list of numbers"
        );
        let none = Job::from_environment(&|_| None).unwrap_err().fault().text;
        assert_eq!(none, "read SLURM_JOB_ID: slurmd did not set it");
    }
}
