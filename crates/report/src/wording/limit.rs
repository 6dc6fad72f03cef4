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

/// Notes that a size in decimal GB is less than a card of that name has.
pub fn decimal_note(size: Bytes) -> Option<String> {
    const GB: u64 = 1_000_000_000;
    // A size in binary units is a multiple of a MiB.
    let is_decimal = size.0 >= GB && size.0.is_multiple_of(GB) && !size.0.is_multiple_of(1 << 20);
    let count = size.0 / GB;
    is_decimal.then(|| {
        format!(
            "note: {count}GB is {}; a card sold as {count} GB has about {count} GiB: {count}GiB",
            amount(size)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_decimal_sizes_are_noted() {
        let note = decimal_note("24GB".parse().unwrap()).unwrap();
        assert!(note.starts_with("note: 24GB is 22.35 GiB; a card sold as 24 GB"), "{note}");
        for size in ["24GiB", "24G", "19050MiB", "500MB", "1.5GB"] {
            assert_eq!(decimal_note(size.parse().unwrap()), None, "{size}");
        }
    }
}
