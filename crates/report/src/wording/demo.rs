//! Text of `gpuws demo`, and the request that it makes.

use crate::text::Line;
use gpu_core::Pid;
use gpu_reaper::{Advice, Diagnosis, Request};

/// Returns the end of each of two claims for one GPU by its exit status, and whether they excluded
/// each other; `is_shared`: both had the GPU at the same time.
pub fn raced(exits: [Option<i32>; 2], is_exclusive: bool, is_shared: bool) -> Vec<Line> {
    let end = |(at, exit): (usize, Option<i32>)| {
        let text = match exit {
            Some(0) => "got GPU 0, and its job ended: exit 0".to_owned(),
            Some(75) if exits[1 - at] == Some(75) => {
                "not granted: another lease has GPU 0: exit 75".to_owned()
            }
            Some(75) => "not granted, because the other claim has GPU 0: exit 75".to_owned(),
            Some(99) => "got GPU 0 while the other claim had it".to_owned(),
            Some(code) => format!("failed: exit {code}"),
            None => "was ended by a signal".to_owned(),
        };
        Line::new().plain(format_args!("  claim {}: {text}", at + 1))
    };
    let verdict = match (is_exclusive, is_shared) {
        (true, _) => "Exclusion works: at no time did both have GPU 0.",
        (false, true) => "Exclusion FAILS here: both had GPU 0 at the same time.",
        (false, false) => "The claims did not end as expected; the messages above have the reason.",
    };
    exits.into_iter().enumerate().map(end).chain([Line::new().accent(verdict)]).collect()
}

/// Returns the request that the findings advise, or the default request; and its options as text for
/// a command.
pub fn request(diagnosis: &Diagnosis) -> (Request<'static>, String) {
    let advised = diagnosis.findings.iter().flat_map(|finding| &finding.advice);
    let mut pids: Vec<Pid> = Vec::new();
    for advice in advised {
        match advice {
            Advice::ReapDevice(_) => return (Request::default(), String::new()),
            Advice::ReapProcess(pid) if !pids.contains(pid) => pids.push(*pid),
            _ => {}
        }
    }
    let options: String = pids.iter().map(|pid| format!(" --pid {pid}")).collect();
    (Request { pids, ..Request::default() }, options)
}
