//! The processes that Slurm tracks, as `scontrol listpids` lists them.

use gpu_core::Pid;
use std::collections::BTreeMap;

/// The most processes that are kept.
const PROCESSES: usize = 1 << 20;

/// Returns the job of each process in the output of `scontrol listpids`, which asks the steps on
/// this node, not the controller.
pub fn tracked(text: &str) -> BTreeMap<Pid, String> {
    let rows = text.lines().take(PROCESSES).filter_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let (pid, job): (u32, u32) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        (pid > 0).then(|| (Pid(pid), job.to_string()))
    });
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_of_steps_are_listed_with_their_job() {
        let text = "PID      JOBID    STEPID   LOCALID GLOBALID\n\
                    18804    2        batch    0       0\n\
                    -1       2        extern   0       0\n\
                    18803    1        0        -       -\n";
        let expected = [(Pid(18803), "1".to_owned()), (Pid(18804), "2".to_owned())];
        assert_eq!(tracked(text).into_iter().collect::<Vec<_>>(), expected);
        for hostile in ["No job steps exist on this node.", "", "\u{0} 1", "1", "9999999999999 1"] {
            assert!(tracked(hostile).is_empty(), "{hostile}");
        }
    }
}
