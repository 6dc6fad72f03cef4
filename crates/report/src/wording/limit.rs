//! Text about a memory limit.

use gpu_core::{Bytes, amount};
use gpu_memory_advice::environment::{Advice, Keeper};

/// Warns that no setting limits a program because its framework is unknown.
pub fn unlimited(advice: &Advice, limit: Bytes) -> Option<String> {
    let is_unlimited = advice.variables.is_empty() && advice.code.is_empty();
    is_unlimited.then(|| {
        format!(
            "warning: the {} limit is not enforced: no PyTorch, TensorFlow or JAX found; name the \
             framework with --framework torch, tensorflow or jax",
            amount(limit)
        )
    })
}

/// Returns one line that names the settings that keep a job within its share, and how strict they
/// are.
pub fn reported(advice: &Advice, share: Bytes) -> String {
    let share = amount(share);
    let by = |keeper: Keeper| {
        let kept = advice.variables.iter().filter(|variable| variable.kept_by == keeper);
        kept.map(|variable| variable.name).collect::<Vec<_>>().join(" and ")
    };
    let (server, allocator) = (by(Keeper::Server), by(Keeper::Allocator));
    let more = "for details: gpuws mem env";
    match (server.is_empty(), allocator.is_empty()) {
        (false, _) => format!(
            "limited to {share} by {server} if the program uses the MPS \
            server; {more}"
        ),
        (true, false) => format!("limited to {share} by {allocator} (cooperative); {more}"),
        (true, true) if advice.code.is_empty() => {
            let why = advice.notes.first().map_or("", String::as_str);
            format!("warning: the {share} limit is not enforced: {why}")
        }
        (true, true) => {
            let names: Vec<&str> = advice.code.iter().map(|code| code.framework.name()).collect();
            let names = names.join(" and ");
            format!("warning: set the limit of {share} for {names} in the program itself; {more}")
        }
    }
}
